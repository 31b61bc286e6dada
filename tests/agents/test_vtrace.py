"""V-trace: equal to the paper's sum over products, and its special cases."""

import pytest
import torch

from fastweights.agents.vtrace import vtrace

T, B = 6, 4
CLIPS = [(1.0, 1.0, 1.0), (2.0, 0.7, 1.5), (0.5, 3.0, 1e9), (1e9, 1e9, 0.3)]


@pytest.fixture
def streams():
    """Return random off-policy streams; every third discount is zero."""
    numbers = dict(zip(("log_rho", "reward", "value"), torch.randn(3, T, B).double(), strict=True))
    discount = torch.rand(T, B).double()
    discount.flatten()[::3] = 0
    return numbers | {"discount": discount, "bootstrap_value": torch.randn(B).double()}


def double_sum(log_rho, discount, reward, value, bootstrap_value, rho_clip, c_clip):
    """Compute Espeholt et al. 2018, eq. 1, with a separate discount for each step."""
    rho, c = log_rho.exp().clamp(max=rho_clip), log_rho.exp().clamp(max=c_clip)
    V = torch.cat([value, bootstrap_value[None]])
    targets = torch.zeros(T, B).double()
    for b in range(B):
        for s in range(T):
            total = V[s, b]
            for t in range(s, T):
                delta = rho[t, b] * (reward[t, b] + discount[t, b] * V[t + 1, b] - V[t, b])
                product = 1.0
                for i in range(s, t):
                    product = product * discount[i, b] * c[i, b]
                total = total + product * delta
            targets[s, b] = total
    return targets


@pytest.mark.parametrize(("rho_clip", "c_clip", "pg_rho_clip"), CLIPS)
def test_targets_are_the_papers_double_sum(streams, rho_clip, c_clip, pg_rho_clip):
    clips = {"rho_clip": rho_clip, "c_clip": c_clip}
    result = vtrace(**streams, **clips, pg_rho_clip=pg_rho_clip)
    expected = double_sum(**streams, **clips)
    torch.testing.assert_close(result.value_targets, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("rho_clip", "c_clip", "pg_rho_clip"), CLIPS)
def test_advantages_look_one_target_ahead(streams, rho_clip, c_clip, pg_rho_clip):
    clips = {"rho_clip": rho_clip, "c_clip": c_clip}
    result = vtrace(**streams, **clips, pg_rho_clip=pg_rho_clip)
    targets = torch.cat([double_sum(**streams, **clips), streams["bootstrap_value"][None]])
    rho = streams["log_rho"].exp().clamp(max=pg_rho_clip)
    for t in range(T):
        following = streams["reward"][t] + streams["discount"][t] * targets[t + 1]
        expected = rho[t] * (following - streams["value"][t])
        torch.testing.assert_close(result.advantages[t], expected, atol=1e-12, rtol=0)


def test_on_policy_targets_are_n_step_returns(streams):
    streams["log_rho"] = torch.zeros(T, B).double()
    result = vtrace(**streams)
    following = streams["bootstrap_value"]
    for t in reversed(range(T)):
        following = streams["reward"][t] + streams["discount"][t] * following
        torch.testing.assert_close(result.value_targets[t], following, atol=1e-12, rtol=0)
        advantage = following - streams["value"][t]
        torch.testing.assert_close(result.advantages[t], advantage, atol=1e-12, rtol=0)


def test_nothing_crosses_the_end_of_an_episode(streams):
    streams["discount"][2] = 0
    before = vtrace(**streams)
    for name in ("log_rho", "reward", "value"):
        streams[name][3:] += 10
    after = vtrace(**streams)
    assert torch.equal(before.value_targets[:3], after.value_targets[:3])
    assert torch.equal(before.advantages[:3], after.advantages[:3])


def test_default_clips_are_one(streams):
    expected = vtrace(**streams, rho_clip=1.0, c_clip=1.0, pg_rho_clip=1.0)
    assert all(map(torch.equal, vtrace(**streams), expected))


def test_targets_carry_no_gradient(streams):
    for tensor in streams.values():
        tensor.requires_grad_()
    assert not any(tensor.requires_grad for tensor in vtrace(**streams))
