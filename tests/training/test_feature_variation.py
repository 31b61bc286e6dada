"""What the log says about how much a stem's features differ between pictures."""

import pytest
import torch
from small_runs import train

from fastweights.agents import Network, NetworkConfig
from fastweights.records.log_table import read_logs
from fastweights.training.feature_variation import FeatureVariation, variation


def test_variation_by_hand():
    frames = torch.tensor([[1, 0], [0, 2], [0, 0]], dtype=torch.uint8)
    features = torch.tensor([[3.0, 0.0], [5.0, 2.0], [90.0, 90.0]])  # of the blank frame: left out
    assert variation(frames, features).item() == pytest.approx((1 / ((16 + 1) / 2)) ** 0.5)
    assert variation(frames[2:], features[2:]).isnan()


def network(shape):
    return Network(NetworkConfig(frame_shape=shape, num_actions=2, core="lstm"))


def passed(net, frame):
    rows = torch.zeros(frame.shape[:2])
    net(frame, rows, rows.bool(), rows.long(), net.initial_state(frame.shape[1]))


def test_only_the_first_pass_with_a_gradient_counts():
    net = network((1, 84, 84))
    frames = torch.randint(1, 256, (3, 3, 2, 1, 84, 84), dtype=torch.uint8)
    expected = variation(frames[1].flatten(0, 1), net.stem(frames[1].flatten(0, 1)).detach())
    with FeatureVariation(net) as measured:
        assert measured.row() == {}
        with torch.no_grad():
            passed(net, frames[0])
        for frame in frames[1:]:
            passed(net, frame)
        assert measured.row() == {"feature_variation": pytest.approx(expected.item())}
        assert measured.row() == {}
    passed(net, frames[0])
    assert measured.row() == {}


def test_vectors_are_not_measured():
    net = network((4,))
    with FeatureVariation(net) as measured:
        passed(net, torch.rand(3, 2, 4))
    assert measured.row() == {}


PICTURES = ("--env-options", "pictures=true", "--core", "lstm", "--total-steps", "40")


@pytest.mark.parametrize("stem", ["shallow_norm", "shallow_centred"])
def test_the_log_says_whether_the_agent_sees(stem, tmp_path):
    assert train(tmp_path, "sees", *PICTURES, "--stem", stem) == 0
    found = read_logs(tmp_path / "sees")["feature_variation"]
    assert len(found) == 2 and all(0.01 < value < 2 for value in found)
