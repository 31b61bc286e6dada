"""The value head's unit: fixed, or following the values' targets."""

import copy
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from test_learner import network, rollout_of

from fastweights.agents.learner import Learner
from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.rollout import Rollout
from fastweights.agents.value_head import ValueHead


class Stop(Exception):
    """Raised by a stage to interrupt an update."""


LARGE = {"reward_clipping": "none", "discounting": 0.5}


@pytest.mark.parametrize("scale", [1.0, 7.0])
@pytest.mark.parametrize(("mean_square", "weight"), [(400.0, 1.0), (400.0, 0.1), (0.01, 0.5)])
def test_the_unit_follows_the_targets_and_the_values_stay(scale, mean_square, weight):
    torch.manual_seed(1)
    head = ValueHead(6, scale, normalize=True).double()
    y = torch.randn(5, 6).double()
    before, unit = head(y), head.scale
    head.follow(torch.tensor(mean_square).double(), weight)
    wanted = (1 - weight) * scale**2 + weight * max(mean_square, scale**2)
    torch.testing.assert_close(head.scale, torch.tensor(wanted).double().sqrt())
    torch.testing.assert_close(head(y), before)
    assert head.scale is unit  # a recorded CUDA graph reads this tensor
    output = torch.nn.functional.linear(y, head.weight, head.bias)
    torch.testing.assert_close(output.squeeze(-1) * head.scale, before)


def test_only_a_unit_that_moves_is_part_of_the_weights():
    fixed, moving = ValueHead(6, 4.0), ValueHead(6, 4.0, normalize=True)
    assert set(fixed.state_dict()) == {"weight", "bias"}
    assert set(moving.state_dict()) == {"weight", "bias", "scale"}


def normalizing(**config) -> Learner:
    """Return a learner whose values are normalised."""
    config = {"objective": "ppo", "normalize_values": True} | LARGE | config
    return Learner(network(normalize_values=True), LearnerConfig(**config))


@pytest.mark.parametrize("objective", ["ppo", "appo"])
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


@pytest.mark.parametrize("objective", ["ppo", "appo"])
@pytest.mark.parametrize("limit", [None, 1e-3])
def test_the_first_batch_is_learned_in_its_own_unit(objective, limit):
    """As with a fixed unit of that size, also where the only step is shortened."""
    reuse = {"epochs": 2, "minibatches": 3, "kl_limit": limit, "optimizer": "adam"}
    learner = normalizing(objective=objective, learning_rate=0.02, **reuse)
    net, rollout = learner.network, rollout_of(learner.network)
    acting = net(*rollout[:4], rollout.initial_state)[0].policy_logits[:-1].detach()
    rollout, fixed = rollout._replace(policy_logits=acting), copy.deepcopy(net)
    ours = learner.update(rollout)
    unit = learner.network.value.scale
    fixed.value.follow(unit**2, 1.0)
    theirs = Learner(fixed, replace(learner.config, normalize_values=False)).update(rollout)
    assert unit > 1 and (0 < ours["gradient_steps"] < 1 if limit else ours["gradient_steps"] == 6)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(learner.network.state_dict(), fixed.state_dict())


@pytest.mark.parametrize("reuse", [{}, {"epochs": 2, "minibatches": 3}])
def test_a_batch_cut_short_leaves_the_unit(reuse):
    learner = normalizing(**reuse)
    rollout = rollout_of(learner.network)
    before = copy.deepcopy(learner.network.state_dict())
    units = []

    def stage(name):
        if name == "optimise":
            units.append(learner.network.value.scale.item())
            raise Stop
        return nullcontext()

    learner.stage = stage
    with pytest.raises(Stop):
        learner.update(rollout)
    assert units[0] > 1
    torch.testing.assert_close(learner.network.state_dict(), before, atol=0, rtol=0)


@pytest.mark.parametrize("reward", [torch.inf, 1e21])
def test_a_refused_batch_leaves_the_unit(reward):
    """Squares of 1e21 are too large for float32."""
    learner = normalizing()
    learner.network.float()
    rollout = rollout_of(learner.network)
    rollout = Rollout(
        *(x.float() if x.is_floating_point() else x for x in rollout[:-1]), rollout[-1]
    )
    learner.update(rollout)
    unit = learner.network.value.scale.clone()
    learner.update(rollout._replace(reward=torch.full_like(rollout.reward, reward)))
    assert torch.equal(learner.network.value.scale, unit) and unit > 1


def test_a_network_with_a_fixed_unit_is_refused():
    with pytest.raises(ValueError, match="must also be set in the network's configuration"):
        Learner(network(), LearnerConfig(objective="ppo", normalize_values=True))
