"""Generalised advantages: equal to the paper's sum, term by term."""

import pytest
import torch

from fastweights.agents.gae import gae

T, B = 9, 4


def transitions() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    ended = torch.rand(T, B, generator=generator) < 0.2
    return {
        "discount": 0.9 * (~ended).double(),
        "reward": torch.randn(T, B, generator=generator).double(),
        "value": torch.randn(T, B, generator=generator).double(),
        "bootstrap_value": torch.randn(B, generator=generator).double(),
    }


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 0.95, 1.0])
def test_advantages_are_the_discounted_sum_of_temporal_differences(gae_lambda):
    given = transitions()
    targets = gae(**given, gae_lambda=gae_lambda)
    values = torch.cat([given["value"], given["bootstrap_value"][None]])
    assert (given["discount"] == 0).any() and (given["discount"][-1] > 0).any()
    for b in range(B):
        for t in range(T):
            expected, weight = 0.0, 1.0
            for i in range(t, T):
                discount = float(given["discount"][i, b])
                delta = float(given["reward"][i, b] + discount * values[i + 1, b] - values[i, b])
                expected += weight * delta
                weight *= discount * gae_lambda
            assert float(targets.advantages[t, b]) == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(targets.value_targets, targets.advantages + given["value"])


def test_lambda_one_teaches_the_discounted_return():
    given = transitions()
    following = given["bootstrap_value"]
    targets = gae(**given, gae_lambda=1.0).value_targets
    for t in reversed(range(T)):
        following = given["reward"][t] + given["discount"][t] * following
        torch.testing.assert_close(targets[t], following)


def test_nothing_after_an_episodes_end_counts():
    given = transitions()
    given["discount"][4] = 0.0
    other = {name: tensor.clone() for name, tensor in given.items()}
    other["reward"][5:] += 1
    other["value"][5:] -= 2
    one, two = gae(**given, gae_lambda=0.9), gae(**other, gae_lambda=0.9)
    assert torch.equal(one.advantages[:5], two.advantages[:5])
    assert not torch.equal(one.advantages[5:], two.advantages[5:])
