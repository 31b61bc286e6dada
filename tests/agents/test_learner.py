"""The learner's step against its formulas: losses, micro-batches, clipping, RMSprop, schedule."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from fastweights import envs
from fastweights.agents.actor import Actor
from fastweights.agents.learner import Learner
from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.network import Network, NetworkConfig
from fastweights.agents.rollout import Rollout
from fastweights.agents.vtrace import vtrace
from fastweights.cores import CORES

T, B = 7, 6


def network(core: str = "rdn", **more) -> Network:
    tiny = {"layers": 1, "width": 8, "heads": 2, "feedforward": 8}
    options = tuple((key, tiny[key]) for key in CORES[core].options() if key in tiny)
    return Network(
        NetworkConfig(frame_shape=(4,), num_actions=3, core=core, core_options=options, **more)
    ).double()


def rollout_of(net: Network) -> Rollout:
    """Return a rollout of short mazes: off-policy, with resets, and rewards outside [-1, 1]."""
    torch.manual_seed(5)
    actor = Actor(net, envs.make("TMaze", B, seed=1, options={"corridor": 1}))
    actor.collect(9)
    rollout = actor.collect(T).rollout
    assert rollout.is_first[1:].any()
    other_logits = rollout.policy_logits + torch.randn(T, B, 3)
    reward = 4 * torch.randn(T + 1, B).double()
    cut_value = 4 * torch.randn(T, B).double() * (rollout.is_first[1:] & (reward[1:] > -1))
    assert cut_value.any()
    return rollout._replace(policy_logits=other_logits, reward=reward, cut_value=cut_value)


def gradients(net: Network) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in net.parameters()]


def updated(net: Network, rollout: Rollout, **options) -> tuple[Network, dict[str, Tensor]]:
    """Return a copy of the network after one update, with its gradients."""
    net = copy.deepcopy(net)
    return net, Learner(net, LearnerConfig(**options)).update(rollout)


def literal_losses(net: Network, r: Rollout, clip: bool = True) -> dict[str, Tensor]:
    """Compute the losses with their default costs as sums over rows and streams."""
    output, _ = net(r.frame, r.reward, r.is_first, r.last_action, r.initial_state)
    log_pi, log_mu = output.policy_logits.log_softmax(-1), r.policy_logits.log_softmax(-1)
    taken = torch.nn.functional.one_hot(r.action, 3)
    reward = r.reward[1:].clamp(-1, 1) if clip else r.reward[1:]
    targets = vtrace(
        log_rho=((log_pi[:-1] - log_mu) * taken).sum(-1),
        discount=(~r.is_first[1:]).double() * 0.99,
        reward=reward + 0.99 * r.cut_value,
        value=output.value[:-1],
        bootstrap_value=output.value[-1],
    )
    policy = -((log_pi[:-1] * taken).sum(-1) * targets.advantages).sum()
    baseline = 0.5 * 0.5 * ((targets.value_targets - output.value[:-1]) ** 2).sum()
    entropy = 0.01 * (log_pi.exp() * log_pi)[:-1].sum()
    return {
        "total_loss": policy + baseline + entropy,
        "pg_loss": policy,
        "baseline_loss": baseline,
        "entropy_loss": entropy,
    }


@pytest.mark.parametrize(("reduction", "scale"), [("sum", 1), ("mean", 1 / (T * B))])
@pytest.mark.parametrize(("reward_clipping", "clip"), [("abs_one", True), ("none", False)])
def test_losses_and_gradient_are_the_formulas(reduction, scale, reward_clipping, clip):
    net = network()
    rollout = rollout_of(net)
    expected = literal_losses(net, rollout, clip)
    grads = torch.autograd.grad(expected["total_loss"] * scale, list(net.parameters()))
    options = {"reduction": reduction, "reward_clipping": reward_clipping}
    after, logs = updated(net, rollout, **options, grad_norm_clipping=1e9)
    for name, loss in expected.items():
        torch.testing.assert_close(logs[name], loss.detach() * scale, atol=1e-10, rtol=0)
    for actual, wanted in zip(gradients(after), grads, strict=True):
        torch.testing.assert_close(actual, wanted, atol=1e-10, rtol=0)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("width", [1, 4, B + 5])
@pytest.mark.parametrize("core", ["feedforward", "lstm", "rdn", "srwm"])
def test_micro_batches_give_the_whole_gradient(core, width, reduction):
    net = network(core)
    rollout = rollout_of(net)
    whole, logs = updated(net, rollout, reduction=reduction)
    pieces, logs_of_pieces = updated(net, rollout, reduction=reduction, micro_batch=width)
    for one, other in zip(gradients(whole), gradients(pieces), strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)
    for name in logs:
        torch.testing.assert_close(logs[name], logs_of_pieces[name], atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("asked", "device", "streams"),
    [(None, "cpu", 4), (None, "cuda", 32), (0, "cpu", 32), (8, "cpu", 8), (8, "cuda", 8)],
)
def test_a_cpu_has_few_streams_at_once_unless_told(asked, device, streams):
    config = LearnerConfig(micro_batch=asked)
    assert config.streams_at_once(32, torch.device(device)) == streams


def norm(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors]).norm()


@pytest.mark.parametrize("limit", [0.1, 40.0])
def test_a_long_gradient_is_cut_to_the_limit_and_keeps_its_direction(limit):
    net = network()
    rollout = rollout_of(net)
    rollout = rollout._replace(reward=rollout.reward * 1000)
    long, logs = updated(net, rollout, reward_clipping="none", grad_norm_clipping=1e9)
    cut, cut_logs = updated(net, rollout, reward_clipping="none", grad_norm_clipping=limit)
    assert norm(gradients(long)) > 40
    torch.testing.assert_close(norm(gradients(cut)).item(), limit, rtol=1e-6, atol=0)
    assert logs["gradient_norm"] == cut_logs["gradient_norm"]  # logged before clipping
    scale = limit / logs["gradient_norm"]
    for one, other in zip(gradients(long), gradients(cut), strict=True):
        torch.testing.assert_close(one * scale, other, rtol=1e-6, atol=1e-12)


def test_a_short_gradient_is_left_alone_and_forty_is_the_published_limit():
    net = network()
    rollout = rollout_of(net)
    free, logs = updated(net, rollout, reduction="mean", grad_norm_clipping=1e9)
    limited, _ = updated(net, rollout, reduction="mean")
    assert logs["gradient_norm"] < LearnerConfig().grad_norm_clipping == 40
    assert all(map(torch.equal, gradients(free), gradients(limited)))


@pytest.mark.parametrize(
    ("alpha", "epsilon", "momentum", "options"),
    [
        (0.99, 0.01, 0.0, {}),  # as published
        (0.9, 1e-5, 0.5, {"alpha": 0.9, "epsilon": 1e-5, "momentum": 0.5}),
    ],
)
def test_rmsprop_is_the_formula(alpha, epsilon, momentum, options):
    """RMSprop averages squares without centring; epsilon is added to the root."""
    net = network()
    rollout = rollout_of(net)
    learner = Learner(net, LearnerConfig(total_steps=10 * T * B, **options))
    squares, moving = ([torch.zeros_like(p) for p in net.parameters()] for _ in range(2))
    for update in range(3):
        before = [parameter.detach().clone() for parameter in net.parameters()]
        learner.update(rollout)
        rate = 6e-4 * (1 - update / 10)
        for i, (old, new) in enumerate(zip(before, net.parameters(), strict=True)):
            squares[i] = alpha * squares[i] + (1 - alpha) * new.grad**2
            moving[i] = momentum * moving[i] + new.grad / (squares[i].sqrt() + epsilon)
            torch.testing.assert_close(new.detach(), old - rate * moving[i], atol=1e-12, rtol=0)


def test_the_learning_rate_reaches_zero_exactly_at_total_steps():
    net = network()
    rollout = rollout_of(net)
    learner = Learner(net, LearnerConfig(total_steps=4 * T * B, learning_rate=0.5e-3))
    rates = [learner.learning_rate()]
    for _ in range(5):
        learner.update(rollout)
        rates.append(learner.learning_rate())
    assert rates == [0.5e-3, 0.375e-3, 0.25e-3, 0.125e-3, 0.0, 0.0]
    assert (learner.steps, learner.updates) == (5 * T * B, 5)
    before = copy.deepcopy(net.state_dict())
    learner.update(rollout)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize(
    ("final", "expected"),
    [(0.25, [0.5, 0.375, 0.25, 0.25]), (0.5, [0.5] * 4), (1.0, [0.5, 0.75, 1.0, 1.0])],
)
def test_the_learning_rate_ends_at_the_final_one(final, expected):
    net = network()
    config = LearnerConfig(total_steps=2 * T * B, learning_rate=0.5, final_learning_rate=final)
    learner, rates = Learner(net, config), []
    for steps in range(0, 4 * T * B, T * B):
        learner.steps = steps
        rates.append(learner.learning_rate())
    assert rates == expected and config.has_constant_rate == (final == 0.5)


def test_a_restored_learner_goes_on_bit_for_bit():
    net = network()
    rollout = rollout_of(net)
    config = LearnerConfig(total_steps=10 * T * B, momentum=0.5)
    learner = Learner(net, config)
    learner.update(rollout)
    saved = copy.deepcopy((net.state_dict(), learner.state_dict()))
    learner.update(rollout)
    learner.update(rollout)

    other = network()
    other.load_state_dict(saved[0])
    restored = Learner(other, config)
    restored.load_state_dict(saved[1])
    restored.update(rollout)
    restored.update(rollout)
    assert (restored.steps, restored.updates) == (learner.steps, learner.updates)
    assert all(map(torch.equal, net.parameters(), other.parameters()))


def test_rewards_are_clipped_by_the_learner_and_not_in_the_rollout():
    net = network()
    rollout = rollout_of(net)
    clipped = rollout._replace(reward=rollout.reward.clamp(-1, 1))
    original = rollout.reward.clone()
    one, logs = updated(net, rollout)
    other, logs_of_clipped = updated(net, clipped)
    assert torch.equal(rollout.reward, original)
    assert original.abs().max() > 1
    assert all(map(torch.equal, gradients(one), gradients(other)))
    assert all(torch.equal(logs[name], logs_of_clipped[name]) for name in logs)
    _, unclipped = updated(net, rollout, reward_clipping="none")
    assert unclipped["total_loss"] != logs["total_loss"]


@pytest.mark.parametrize("ended", [True, False])
def test_only_an_episode_that_goes_on_is_bootstrapped(ended):
    net = network("feedforward")
    rollout = rollout_of(net)
    rollout.is_first[-1] = ended
    other_frame = rollout.frame.clone()
    other_frame[-1] += 1
    one, _ = updated(net, rollout)
    other, _ = updated(net, rollout._replace(frame=other_frame))
    same = all(map(torch.equal, gradients(one), gradients(other)))
    assert same == ended


NUMBERS = ("baseline_cost", "entropy_cost", "discounting", "rho_clip", "c_clip", "pg_rho_clip")


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_of_the_config_matters(name):
    net = network()
    rollout = rollout_of(net)
    _, logs = updated(net, rollout)
    _, changed = updated(net, rollout, **{name: 0.2})
    assert logs["total_loss"] != changed["total_loss"]


def test_an_update_stopped_before_the_optimisers_step_leaves_no_trace():
    class Stop(Exception):
        pass

    entered = []

    def stage(name):
        entered.append(name)
        if entered.count("gradient") == 3:
            raise Stop
        return nullcontext()

    net = network()
    rollout, before = rollout_of(net), copy.deepcopy(net.state_dict())
    learner = Learner(net, LearnerConfig(micro_batch=2), stage)
    with pytest.raises(Stop):
        learner.update(rollout)
    assert entered == ["gradient"] * 3 and (learner.steps, learner.updates) == (0, 0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    after, _ = updated(net, rollout)
    learner.stage = nullcontext
    learner.update(rollout)
    for one, two in zip(net.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(one, two)


class Twin:
    """The first of two learners whose shares of every batch are equal: a sum is twice its part."""

    rank, count = 0, 2

    def sum(self, tensors):
        for tensor in tensors:
            tensor.mul_(2)


def test_logged_values_are_means_over_all_learners():
    net = network()
    rollout, config = rollout_of(net), LearnerConfig(reduction="mean")
    alone, twin = (Learner(copy.deepcopy(net), config, replicas=r) for r in (None, Twin()))
    expected, logs = alone.update(rollout), twin.update(rollout)
    assert (alone.steps, twin.steps) == (T * B, 2 * T * B)
    for name in expected:
        torch.testing.assert_close(logs[name], expected[name], msg=name)


def test_a_restored_learner_goes_on_counting_refused_batches():
    learner = Learner(network(), LearnerConfig())
    rollout = rollout_of(learner.network)
    spoilt = rollout._replace(reward=torch.full_like(rollout.reward, torch.nan))
    learner.update(spoilt)
    restored = Learner(network(), LearnerConfig())
    restored.load_state_dict(learner.state_dict())
    restored.update(spoilt)
    assert (restored.refused, restored.updates, restored.steps) == (2, 0, 2 * T * B)
    assert restored.refused_in_a_row == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_batch_that_is_not_finite_changes_no_weight_and_is_counted(bad):
    net = network()
    learner, rollout = Learner(net, LearnerConfig(reward_clipping="none")), rollout_of(net)
    spoilt = rollout.reward.clone()
    spoilt[3, 2] = bad
    learner.update(rollout)
    weights, state = copy.deepcopy(net.state_dict()), copy.deepcopy(learner.optimizer.state_dict())
    for count in (1, 2):
        losses = learner.update(rollout._replace(reward=spoilt))
        assert not losses["total_loss"].isfinite()
        assert (learner.refused, learner.refused_in_a_row) == (count, count)
    assert (learner.updates, learner.steps) == (1, 3 * T * B)
    for name, weight in net.state_dict().items():
        assert torch.equal(weight, weights[name]), name
    torch.testing.assert_close(
        learner.optimizer.state_dict()["state"], state["state"], rtol=0, atol=0
    )
    learner.update(rollout)
    assert (learner.updates, learner.refused, learner.refused_in_a_row) == (2, 2, 0)
    counts = {"steps": 4 * T * B, "updates": 2, "refused": 2, "refused_in_a_row": 0}
    assert learner.state_dict()["schedule"] == counts
    assert all(weight.isfinite().all() for weight in net.state_dict().values())
