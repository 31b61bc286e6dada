"""Batches used more than once: losses, steps, limits, interrupted and failed updates."""

import copy
from contextlib import nullcontext

import pytest
import torch
from test_learner import B, T, network, rollout_of, updated
from torch import Tensor

from fastweights import envs
from fastweights.agents.actor import Actor
from fastweights.agents.gae import gae
from fastweights.agents.learner import Learner
from fastweights.agents.learner_config import LearnerConfig
from fastweights.agents.network import Network
from fastweights.agents.objectives import OBJECTIVES
from fastweights.agents.rollout import Rollout
from fastweights.agents.vtrace import vtrace
from fastweights.kernels import map_state

SURROGATES = [name for name, objective in OBJECTIVES.items() if objective.clips]
PPO = {"objective": "ppo", "reduction": "mean", "normalize_advantages": True}
REUSE = PPO | {"epochs": 3, "minibatches": 3, "optimizer": "adam", "grad_norm_clipping": 0.5}


def probabilities(net: Network, r: Rollout) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the taken actions' probabilities by `net` and when acting, all values, the policy."""
    output, _ = net(r.frame, r.reward, r.is_first, r.last_action, r.initial_state)
    pi, mu = output.policy_logits[:-1].softmax(-1), r.policy_logits.softmax(-1)
    taken = torch.nn.functional.one_hot(r.action, 3)
    return (pi * taken).sum(-1), (mu * taken).sum(-1), output.value, pi


def literal_targets(objective: str, net: Network, r: Rollout) -> tuple[Tensor, Tensor]:
    pi, mu, value, _ = probabilities(net, r)
    discount = (~r.is_first[1:]).double() * 0.99
    reward = r.reward[1:].clamp(-1, 1) + 0.99 * r.cut_value
    given = {"reward": reward, "discount": discount, "value": value[:-1].detach()}
    given["bootstrap_value"] = value[-1].detach()
    if objective == "ppo":
        targets = gae(**given, gae_lambda=0.95)
        return targets.value_targets, targets.advantages
    targets = vtrace(**given, log_rho=(pi / mu).log()).value_targets
    following = torch.cat([targets[1:], given["bootstrap_value"][None]])
    return targets, reward + discount * following - given["value"]


def literal_losses(
    objective: str, net: Network, r: Rollout, normalize: bool, before: Network | None = None
) -> dict[str, Tensor]:
    """Compute the losses as means over the batch, with targets of the network `before`."""
    targets, advantages = literal_targets(objective, before or net, r)
    if normalize:
        deviation = ((advantages - advantages.mean()) ** 2).mean().sqrt()
        advantages = (advantages - advantages.mean()) / deviation
    pi, mu, value, policy = probabilities(net, r)
    gains = torch.stack([pi / mu * advantages, (pi / mu).clamp(0.9, 1.1) * advantages])
    losses = {
        "pg_loss": -gains.min(0).values.mean(),
        "baseline_loss": 0.25 * ((targets - value[:-1]) ** 2).mean(),
        "entropy_loss": 0.01 * (policy * policy.log()).sum(-1).mean(),
    }
    return losses | {"total_loss": sum(losses.values())}


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("objective", SURROGATES)
@pytest.mark.parametrize("micro_batch", [0, 4])
def test_surrogates_are_the_formulas(objective, normalize, micro_batch):
    net = network()
    rollout = rollout_of(net)
    expected = literal_losses(objective, net, rollout, normalize)
    grads = torch.autograd.grad(expected["total_loss"], list(net.parameters()))
    after, logs = updated(
        net,
        rollout,
        objective=objective,
        normalize_advantages=normalize,
        reduction="mean",
        grad_norm_clipping=1e9,
        micro_batch=micro_batch,
    )
    for name, loss in expected.items():
        torch.testing.assert_close(logs[name], loss.detach(), atol=1e-7, rtol=0)
    for parameter, wanted in zip(after.parameters(), grads, strict=True):
        torch.testing.assert_close(parameter.grad, wanted, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("objective", SURROGATES)
@pytest.mark.parametrize("core", ["lstm", "rdn", "srwm"])
def test_values_from_acting_save_a_pass_and_give_the_same_update(objective, core, monkeypatch):
    net = network(core)
    torch.manual_seed(5)
    actor = Actor(net, envs.make("TMaze", B, seed=1, options={"corridor": 1}))
    actor.collect(9)
    with_values = actor.collect(T, values=True).rollout
    assert with_values.is_first[1:].any() and with_values.value.any()
    passes = []
    forward = Network.forward
    monkeypatch.setattr(Network, "forward", lambda *a: (passes.append(1), forward(*a))[1])
    saved, logs = updated(net, with_values, **REUSE, micro_batch=0)
    made = len(passes)
    without = with_values._replace(value=with_values.value[:0])
    usual, usual_logs = updated(net, without, **REUSE, micro_batch=0)
    assert made == 9 and len(passes) - made == 10  # three passes in thirds, and one for the targets
    for one, other in zip(saved.parameters(), usual.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)
    for name, value in usual_logs.items():
        torch.testing.assert_close(logs[name], value, atol=1e-8, rtol=0)


def test_equal_advantages_are_normalised_to_zero():
    net = network()
    torch.nn.init.zeros_(net.value.weight), torch.nn.init.zeros_(net.value.bias)
    rollout = rollout_of(net)
    zeros = torch.zeros_like
    unpaid = rollout._replace(reward=zeros(rollout.reward), cut_value=zeros(rollout.cut_value))
    _, logs = updated(net, unpaid, **PPO)
    assert logs["pg_loss"] == 0 and logs["gradient_steps"] == 1


@pytest.mark.parametrize("objective", SURROGATES)
def test_targets_stay_those_of_the_weights_before_the_batch(objective):
    """The second pass over the whole batch has a new policy but the same targets."""
    net = network()
    rollout, before = rollout_of(net), copy.deepcopy(net)
    options = {"objective": objective, "reduction": "mean", "learning_rate": 0.02}
    once, first = updated(net, rollout, **options)
    _, both = updated(net, rollout, **options, epochs=2)
    second = literal_losses(objective, once, rollout, False, before)["total_loss"]
    torch.testing.assert_close(2 * both["total_loss"] - first["total_loss"], second.detach())


def test_passes_of_vtrace_take_targets_from_their_own_weights():
    net = network()
    rollout = rollout_of(net)
    once, first = updated(net, rollout, learning_rate=0.02)
    _, second = updated(once, rollout)
    _, both = updated(net, rollout, learning_rate=0.02, epochs=2)
    for name in ("total_loss", "pg_loss", "baseline_loss", "entropy_loss", "gradient_norm"):
        torch.testing.assert_close(2 * both[name] - first[name], second[name], msg=name)


def test_a_minibatch_is_whole_streams_from_their_first_states():
    """Three minibatches of two streams equal three updates on two streams each."""
    net, other = network(), network()
    other.load_state_dict(net.state_dict())
    rollout = rollout_of(net)
    learner = Learner(net, LearnerConfig(minibatches=3, reduction="mean"), seed=4)
    batches = [part.rollout for part in learner._minibatches(learner._prepared(rollout))]
    logs = learner.update(rollout)
    assert logs["gradient_steps"] == 3 and learner.updates == 1 and learner.steps == T * B
    alone = Learner(other, LearnerConfig(reduction="mean"))
    for part in batches:
        assert part.action.shape == (T, 2)
        alone.update(part)
        alone.steps = 0  # one learning rate for the whole batch
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-12, rtol=0)


def test_adam_is_the_formula():
    net = network()
    rollout = rollout_of(net)
    rate, betas, epsilon = 1e-3, (0.8, 0.95), 1e-4
    names = {"adam_beta1": betas[0], "adam_beta2": betas[1], "adam_epsilon": epsilon}
    config = LearnerConfig(optimizer="adam", learning_rate=rate, total_steps=10 * T * B, **names)
    learner = Learner(net, config)
    means, squares = ([torch.zeros_like(p) for p in net.parameters()] for _ in range(2))
    for step in range(1, 4):
        before = [parameter.detach().clone() for parameter in net.parameters()]
        learner.update(rollout)
        for i, (old, new) in enumerate(zip(before, net.parameters(), strict=True)):
            means[i] = betas[0] * means[i] + (1 - betas[0]) * new.grad
            squares[i] = betas[1] * squares[i] + (1 - betas[1]) * new.grad**2
            mean, square = means[i] / (1 - betas[0] ** step), squares[i] / (1 - betas[1] ** step)
            moved = rate * (1 - (step - 1) / 10) * mean / (square.sqrt() + epsilon)
            torch.testing.assert_close(new.detach(), old - moved, atol=1e-12, rtol=0)


@pytest.mark.parametrize("reuse", [{}, {"epochs": 2, "minibatches": 3, "learning_rate": 0.0}])
def test_what_is_logged_of_the_policy_and_the_values(reuse):
    net = network()
    rollout = rollout_of(net)
    pi, mu, value, policy = probabilities(net, rollout)
    targets, _ = literal_targets("ppo", net, rollout)
    _, logs = updated(net, rollout, **PPO, **reuse)
    entropy = -(policy * policy.log()).sum(-1).mean().detach()
    torch.testing.assert_close(logs["entropy"], entropy)
    ratio = (pi / mu).detach()
    torch.testing.assert_close(logs["approx_kl"], (ratio - 1 - ratio.log()).mean())
    assert reuse or logs["last_kl"] == logs["approx_kl"]
    torch.testing.assert_close(logs["clip_fraction"], ((ratio - 1).abs() > 0.1).double().mean())
    error = (targets - value[:-1]).detach()
    explained = 1 - error.var(correction=0) / targets.var(correction=0)
    torch.testing.assert_close(logs["explained_variance"], explained)
    assert "clip_fraction" not in updated(net, rollout)[1]  # V-trace has no clip range


def test_a_small_variance_of_large_values_is_not_lost_in_float32():
    net = network()
    rollout = rollout_of(net)
    rollout.is_first[1:] = False
    net.value.bias.data.fill_(1e4)
    _, exact = updated(net, rollout, **PPO)
    single = rollout._replace(
        **{name: getattr(rollout, name).float() for name in ("frame", "reward", "policy_logits")},
        initial_state=map_state(Tensor.float, rollout.initial_state),
    )
    _, logs = updated(net.float(), single, **PPO)
    assert exact["explained_variance"].abs() < 1e3
    torch.testing.assert_close(
        logs["explained_variance"].double(), exact["explained_variance"], rtol=1e-3, atol=1e-3
    )


def test_a_batch_is_left_where_the_policy_has_moved_too_far():
    """An update ends before the first step beyond the limit, and not earlier."""
    torch.manual_seed(1)
    net = network()
    rollout = rollout_of(net)
    logits = net(*rollout[:4], rollout.initial_state)[0].policy_logits[:-1].detach()
    fresh = rollout._replace(policy_logits=logits)  # as if these weights had acted
    # With these options the policy moves further with each step.
    gently = {"learning_rate": 0.01, "adam_beta1": 0.0, "adam_epsilon": 1.0}
    options = REUSE | gently
    free = Learner(copy.deepcopy(net), LearnerConfig(**options))
    moved, weights = [], []
    for minibatch in free._minibatches(free._prepared(fresh)):
        sums = free._gradient(minibatch)
        moved.append(float(sums["kl"] / sums["count"]))
        weights.append([parameter.detach().clone() for parameter in free.network.parameters()])
        torch.nn.utils.clip_grad_norm_(free.network.parameters(), 0.5)
        free.optimizer.step()
    limit = 1.001 * max(moved[:4])
    stops = next(step for step, kl in enumerate(moved) if kl > limit)
    limited, logs = updated(net, fresh, **options, kl_limit=limit)
    assert len(moved) == 9 and 4 <= stops == logs["gradient_steps"]
    assert logs["approx_kl"].item() == pytest.approx(sum(moved[:stops]) / stops)
    assert logs["last_kl"].item() == pytest.approx(moved[stops])
    assert all(map(torch.equal, weights[stops], limited.parameters()))


@pytest.mark.parametrize("learning_rate", [0.02, 0.1, 10.0])
def test_a_first_step_beyond_the_limit_is_shortened_however_large_it_is(learning_rate):
    torch.manual_seed(1)
    net = network()
    rollout = rollout_of(net)
    acting = net(*rollout[:4], rollout.initial_state)[0].policy_logits[:-1].detach()
    fresh = rollout._replace(policy_logits=acting)
    options = REUSE | {"learning_rate": learning_rate}

    def moved(after: Network) -> Tensor:
        logits = after(*rollout[:4], rollout.initial_state)[0].policy_logits[:-1].detach()
        before, new = acting.log_softmax(-1), logits.log_softmax(-1)
        return (before.exp() * (before - new)).sum(-1).mean()

    whole, logs = updated(net, fresh, **options | {"epochs": 1, "minibatches": 1})
    assert logs["gradient_steps"] == 1 and moved(whole) > 0.02
    shortened, logs = updated(net, fresh, **options, kl_limit=0.01)
    assert 0 < logs["gradient_steps"] < 1 and 0 < moved(shortened) < 0.015


def test_how_much_is_explained_is_of_the_values_before_the_first_step():
    net = network()
    rollout, options = rollout_of(net), PPO | {"learning_rate": 0.02}
    once, twice = (updated(net, rollout, **options, epochs=n)[1] for n in (1, 2))
    assert twice["baseline_loss"] > 1.1 * once["baseline_loss"]  # the second pass has other values
    torch.testing.assert_close(twice["explained_variance"], once["explained_variance"])


def test_a_batch_of_old_rollouts_has_its_first_step_beyond_the_limit_too():
    """Otherwise a learner that lags would throw such batches away and never catch up."""
    net = network()
    rollout, before = rollout_of(net), copy.deepcopy(net.state_dict())
    after, logs = updated(net, rollout, **REUSE, kl_limit=1e-9)
    assert logs["approx_kl"] > 0.1 and logs["gradient_steps"] == 1
    assert any(not torch.equal(w, before[name]) for name, w in after.state_dict().items())


def test_minibatches_are_drawn_anew_after_a_batch_that_was_refused():
    learner = Learner(network(), LearnerConfig(minibatches=3))
    rollout, dealt = rollout_of(learner.network), []
    spoilt = rollout._replace(reward=torch.full_like(rollout.reward, torch.nan))
    for _ in range(8):
        parts = learner._minibatches(learner._prepared(rollout))
        dealt.append(torch.cat([part.rollout.reward[0] for part in parts]).tolist())
        learner.update(spoilt)
    assert learner.updates == 0 and len(set(map(tuple, dealt))) > 1


class Stop(Exception):
    """Raised by a stage to interrupt an update."""


@pytest.mark.parametrize(("epochs", "at"), [(3, 1), (3, 4), (3, 9), (1, 4)])
@pytest.mark.parametrize("where", ["gradient", "exchange"])
def test_a_batch_cut_short_leaves_no_trace(where, epochs, at):
    net, config = network(), LearnerConfig(**REUSE | {"epochs": epochs})
    rollout = rollout_of(net)
    learner = Learner(net, config)
    learner.update(rollout)
    before = copy.deepcopy((net.state_dict(), learner.state_dict()))
    after = copy.deepcopy(net)
    entered = []

    def stage(name):
        entered.append(name)
        if entered.count(where) == at and name == where:
            raise Stop
        return nullcontext()

    learner.stage = stage
    with pytest.raises(Stop):
        learner.update(rollout)
    assert all(torch.equal(w, before[0][name]) for name, w in net.state_dict().items())
    torch.testing.assert_close(learner.state_dict(), before[1], atol=0, rtol=0)
    learner.stage = nullcontext
    learner.update(rollout)
    fresh = Learner(after, config)
    fresh.load_state_dict(before[1])
    fresh.update(rollout)
    assert all(map(torch.equal, net.parameters(), after.parameters()))


@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_what_is_not_finite_ends_a_batch_and_keeps_the_steps_before_it(objective):
    net = network()
    rollout = rollout_of(net)
    config = LearnerConfig(objective=objective, minibatches=3, reward_clipping="none")
    learner = Learner(net, config)
    first = next(learner._minibatches(learner._prepared(rollout))).rollout
    spoilt = rollout.reward.clone()
    others = [b for b in range(B) if not (spoilt[:, [b]] == first.reward).all(0).any()]
    assert len(others) == 4
    spoilt[3, others[0]] = float("nan")
    logs = learner.update(rollout._replace(reward=spoilt))
    assert 1 <= logs["gradient_steps"] < 3 and not logs["total_loss"].isfinite()
    assert (learner.updates, learner.refused, learner.steps) == (1, 1, T * B)
    assert all(weight.isfinite().all() for weight in net.state_dict().values())


@pytest.mark.parametrize(
    ("core", "objective"),
    [("feedforward", "ppo"), ("lstm", "ppo"), ("rdn", "ppo"), ("rdn", "appo"), ("rdn", "vtrace")],
)
def test_a_restored_learner_goes_on_bit_for_bit(core, objective):
    net = network(core)
    options = REUSE | {"objective": objective, "normalize_advantages": objective != "vtrace"}
    rollout, config = rollout_of(net), LearnerConfig(**options, total_steps=10 * T * B)
    learner = Learner(net, config, seed=3)
    learner.update(rollout)
    saved = copy.deepcopy((net.state_dict(), learner.state_dict()))
    learner.update(rollout)
    other = network(core)
    other.load_state_dict(saved[0])
    restored = Learner(other, config, seed=3)
    restored.load_state_dict(saved[1])
    restored.update(rollout)
    assert all(map(torch.equal, net.parameters(), other.parameters()))


def with_a_unit_of_four(net: Network) -> Network:
    """Return a copy that has the same values, in a unit of 4."""
    scaled = copy.deepcopy(net)
    with torch.no_grad():
        scaled.value.weight.div_(4), scaled.value.bias.div_(4), scaled.value.scale.mul_(4)
    return scaled


def test_a_unit_of_values_scales_head_and_loss_and_not_the_policy():
    net = network("feedforward")
    rollout = rollout_of(net)
    scaled = with_a_unit_of_four(net)
    one, logs = updated(net, rollout, **PPO)
    two, logs_scaled = updated(scaled, rollout, **PPO)
    torch.testing.assert_close(logs["pg_loss"], logs_scaled["pg_loss"])
    torch.testing.assert_close(logs["baseline_loss"], 16 * logs_scaled["baseline_loss"])
    torch.testing.assert_close(logs["explained_variance"], logs_scaled["explained_variance"])
    assert one.value.weight.grad.norm() > 0 and two.value.weight.grad.norm() > 0


def test_the_huber_loss_bounds_values_in_their_unit_and_leaves_the_policys_loss():
    net = network("feedforward")
    rollout = rollout_of(net)
    with torch.no_grad():
        net.value.bias.add_(100)  # errors up to about 100
    _, squared = updated(net, rollout, **PPO)
    _, huber = updated(net, rollout, **PPO, huber_delta=2.0)
    torch.testing.assert_close(huber["pg_loss"], squared["pg_loss"], rtol=0, atol=0)
    targets, _ = literal_targets("ppo", net, rollout)
    error = (targets - probabilities(net, rollout)[2][:-1]).abs()
    assert error.min() < 2 < error.max()
    bounded = torch.where(error <= 2, error**2 / 2, 2 * (error - 1))
    torch.testing.assert_close(huber["baseline_loss"], 0.5 * bounded.mean())
    scaled = with_a_unit_of_four(net)
    _, wider = updated(scaled, rollout, **PPO, huber_delta=0.5)  # the same error, in the unit
    torch.testing.assert_close(huber["baseline_loss"], 16 * wider["baseline_loss"])
