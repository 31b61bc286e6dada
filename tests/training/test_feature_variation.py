"""What the log says about how much a stem's features differ between pictures."""

import pytest
import torch
from small_runs import train

from fastweights.agents import Network, NetworkConfig
from fastweights.records.log_table import read_logs
from fastweights.training.feature_variation import FeatureVariation, spread


def test_variation_by_hand():
    frames = torch.tensor([[1, 0], [0, 2], [0, 0]], dtype=torch.uint8)
    features = torch.tensor([[3.0, 0.0], [5.0, 2.0], [90.0, 90.0]])  # of the blank frame: left out
    assert spread(frames, features).variation() == pytest.approx((1 / ((16 + 1) / 2)) ** 0.5)
    assert spread(frames[2:], features[2:]).variation().isnan()


def test_the_spread_of_parts_is_that_of_the_whole():
    frames = torch.randint(0, 2, (12, 1), dtype=torch.uint8)
    frames[4:7] = 0  # a part without a visible frame
    features = 1e3 + torch.randn(12, 5, dtype=torch.float64)
    whole = spread(frames, features)
    parts = [spread(frames[of], features[of]) for of in (slice(0, 4), slice(4, 7), slice(7, 12))]
    joined = parts[0].joined(parts[1]).joined(parts[2])
    torch.testing.assert_close(joined, whole)
    torch.testing.assert_close(parts[1].joined(parts[0]), parts[0])


def network(shape):
    return Network(NetworkConfig(frame_shape=shape, num_actions=2, core="lstm"))


def passed(net, frame):
    rows = torch.zeros(frame.shape[:2])
    net(frame, rows, rows.bool(), rows.long(), net.initial_state(frame.shape[1]))


def test_the_passes_with_a_gradient_before_the_first_gradient_step_count():
    net = network((1, 84, 84))
    frames = torch.randint(1, 256, (4, 3, 2, 1, 84, 84), dtype=torch.uint8)
    first = frames[1:3].flatten(0, 2)
    expected = spread(first, net.stem(first).detach()).variation().item()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with FeatureVariation(net, optimizer) as measured:
        assert measured.row() == {}
        with torch.no_grad():
            passed(net, frames[0])
        for frame in frames[1:3]:  # two micro-batches
            passed(net, frame)
        optimizer.step()
        passed(net, frames[3])
        assert measured.row() == {"feature_variation": pytest.approx(expected, rel=1e-4)}
        assert measured.row() == {}
    passed(net, frames[0])
    assert measured.row() == {}


def test_vectors_are_not_measured():
    net = network((4,))
    with FeatureVariation(net, torch.optim.SGD(net.parameters())) as measured:
        passed(net, torch.rand(3, 2, 4))
    assert measured.row() == {}


PICTURES = ("--env-options", "pictures=true", "--core", "lstm", "--total-steps", "40")


@pytest.mark.parametrize("stem", ["shallow_norm", "shallow_centred"])
def test_the_log_says_whether_the_agent_sees(stem, tmp_path):
    assert train(tmp_path, "sees", *PICTURES, "--stem", stem) == 0
    found = read_logs(tmp_path / "sees")["feature_variation"]
    assert len(found) == 2 and all(0.01 < value < 2 for value in found)


def test_micro_batches_do_not_change_it(tmp_path):
    for name, size in (("whole", "0"), ("parts", "1")):
        assert train(tmp_path, name, *PICTURES, "--micro-batch", size) == 0
    whole, parts = (read_logs(tmp_path / n)["feature_variation"] for n in ("whole", "parts"))
    assert whole == pytest.approx(parts, rel=1e-3)
