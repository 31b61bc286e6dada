"""Checks between layers change no bit, and a pass that they end leaves no trace."""

import copy

import pytest
import torch

from fastweights.agents.learner import Learner
from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.network import Network, NetworkConfig
from fastweights.agents.rollout import Rollout
from fastweights.training.layer_checks import checked_layers

T, B = 2, 3
SHAPE = (1, 12, 12)


class Stopped(Exception):
    pass


def network(frame_shape: tuple[int, ...] = SHAPE, stem: str = "auto") -> Network:
    torch.manual_seed(1)
    return Network(
        NetworkConfig(frame_shape=frame_shape, num_actions=3, core="lstm", stem=stem),
    )


def rollout_of(net: Network) -> Rollout:
    torch.manual_seed(2)
    shape = net.config.frame_shape
    return Rollout(
        frame=torch.randint(0, 256, (T + 1, B, *shape), dtype=torch.uint8),
        reward=torch.randn(T + 1, B),
        is_first=torch.zeros(T + 1, B, dtype=torch.bool),
        last_action=torch.zeros(T + 1, B, dtype=torch.int64),
        action=torch.ones(T, B, dtype=torch.int64),
        policy_logits=torch.randn(T, B, 3),
        cut_value=torch.zeros(T, B),
        value=torch.zeros(0, B),
        initial_state=net.initial_state(B),
    )


def learner_of(net: Network) -> Learner:
    return Learner(net, LearnerConfig(micro_batch=0))


def checks_of(net: Network) -> int:
    """Return the number of checks in an update."""
    calls = []
    with checked_layers(net, lambda: calls.append(torch.is_grad_enabled())):
        learner_of(net).update(rollout_of(net))
    return len(calls)


@pytest.mark.parametrize("stem", ["resnet", "shallow", "shallow_norm", "shallow_centred"])
def test_checked_layers_compute_the_same_bits(stem):
    shape = (1, 24, 24)
    plain, checked = network(shape, stem), network(shape, stem)
    learner_of(plain).update(rollout_of(plain))
    assert checks_of(checked) >= 2 * sum(isinstance(m, torch.nn.Conv2d) for m in plain.modules())
    for one, other in zip(plain.parameters(), checked.parameters(), strict=True):
        assert torch.equal(one, other) and torch.equal(one.grad, other.grad)


def test_a_pass_can_be_ended_at_any_layer_forward_and_backward_and_leaves_no_trace():
    expected = network()
    rollout = rollout_of(expected)
    learner_of(expected).update(rollout)
    for last in range(checks_of(network())):
        net, left = network(), last
        learner, before = learner_of(net), copy.deepcopy(net.state_dict())

        def check():
            nonlocal left
            left -= 1
            if left < 0:
                raise Stopped

        with pytest.raises(Stopped), checked_layers(net, check):
            learner.update(rollout)
        assert left == -1 and (learner.steps, learner.updates) == (0, 0)
        assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
        learner.update(rollout)
        for one, other in zip(net.parameters(), expected.parameters(), strict=True):
            assert torch.equal(one, other)


def test_only_passes_in_the_block_are_checked_and_none_of_a_copy_s():
    net, calls = network(), []
    twin, rollout = copy.deepcopy(net), rollout_of(net)
    seen = rollout.frame, rollout.reward, rollout.is_first, rollout.last_action
    with checked_layers(net, lambda: calls.append(None)):
        twin(*seen, rollout.initial_state)
        assert not calls
        net(*seen, rollout.initial_state)
    count = len(calls)
    net(*seen, rollout.initial_state)
    assert len(calls) == count > 0


def test_vectors_cost_nothing():
    assert checks_of(network((4,))) == 0
