"""The value head's unit: fixed, or following the values' targets."""

import copy

import pytest
import torch
from test_learner import B, T, network, rollout_of

from fastweights.agents.learner import Learner
from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.value_head import ValueHead

LARGE = {"reward_clipping": "none", "discounting": 0.5}


@pytest.mark.parametrize("scale", [1.0, 7.0])
@pytest.mark.parametrize(("mean_square", "weight"), [(400.0, 1.0), (400.0, 0.1), (0.01, 0.5)])
def test_the_unit_follows_the_targets_and_the_values_stay(scale, mean_square, weight):
    torch.manual_seed(1)
    head = ValueHead(6, scale, normalize=True).double()
    y = torch.randn(5, 6).double()
    before = head(y)
    head.follow(torch.tensor(mean_square).double(), weight)
    wanted = (1 - weight) * scale**2 + weight * max(mean_square, scale**2)
    torch.testing.assert_close(head.scale, torch.tensor(wanted).double().sqrt())
    torch.testing.assert_close(head(y), before)
    output = torch.nn.functional.linear(y, head.weight, head.bias)
    torch.testing.assert_close(output.squeeze(-1) * head.scale, before)


def test_only_a_unit_that_moves_is_part_of_the_weights():
    fixed, moving = ValueHead(6, 4.0), ValueHead(6, 4.0, normalize=True)
    assert set(fixed.state_dict()) == {"weight", "bias"}
    assert set(moving.state_dict()) == {"weight", "bias", "scale"}


def normalizing(**config) -> Learner:
    """Return a learner whose values are normalised."""
    net = network()
    net.value.normalize = True
    return Learner(net, LearnerConfig(**LARGE, **config))


@pytest.mark.parametrize("objective", ["vtrace", "ppo", "appo"])
@pytest.mark.parametrize("reuse", [{}, {"epochs": 2, "minibatches": 3}])
def test_the_squared_unit_is_the_mean_of_ten_batches_and_then_a_moving_mean(objective, reuse):
    learner, squares = normalizing(objective=objective, learning_rate=1e-3, **reuse), []
    rollout = rollout_of(learner.network)
    for _ in range(13):
        logs = learner.update(rollout._replace(reward=rollout.reward * (1 + len(squares))))
        squares.append(logs["value_target_rms"].item() ** 2)
        wanted = squares[0]
        for n, square in enumerate(squares[1:], 2):
            wanted += (square - wanted) / min(n, 10)
        assert min(squares) > 1
        assert learner.network.value.scale.item() == pytest.approx(wanted**0.5)
    assert learner.updates == 13


def test_losses_and_gradients_are_those_of_a_fixed_unit_of_that_size():
    learner = normalizing(objective="ppo")
    rollout = rollout_of(learner.network)
    learner.update(rollout)
    fixed = copy.deepcopy(learner.network)
    fixed.value.normalize = False
    assert fixed.value.scale > 1
    other = Learner(fixed, learner.config)
    other.load_state_dict(copy.deepcopy(learner.state_dict()))
    ours, theirs = learner.update(rollout), other.update(rollout)
    assert ours == theirs
    y = torch.randn(T, B, learner.network.core.output_size).double()
    torch.testing.assert_close(learner.network.value(y), fixed.value(y))


def test_a_refused_batch_leaves_the_unit():
    learner = normalizing()
    rollout = rollout_of(learner.network)
    learner.update(rollout)
    unit = learner.network.value.scale.clone()
    learner.update(rollout._replace(reward=torch.full_like(rollout.reward, torch.inf)))
    assert learner.refused == 1 and torch.equal(learner.network.value.scale, unit) and unit > 1
