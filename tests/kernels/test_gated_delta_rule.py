"""The chunked gated delta rule against the reference: every gradient, resets, odd sizes."""

import pytest
import torch

from fastweights.kernels import backend
from fastweights.kernels.gated_delta_rule import DeltaRuleState, gated_delta_rule

B, H, K, V = 3, 2, 3, 5
BACKENDS = ("chunked", "reference")


def inputs(length: int, fading: float) -> list[torch.Tensor]:
    q, k = torch.randn(2, length, B, H, K, dtype=torch.float64).softmax(-1)
    v = torch.randn(length, B, H, V, dtype=torch.float64)
    beta = torch.rand(length, B, H, dtype=torch.float64)
    log_decay = -fading * torch.rand(length, B, H, dtype=torch.float64)
    return [q, k, v, beta, log_decay, torch.randn(B, H, K, V, dtype=torch.float64)]


def results(name: str, given: list[torch.Tensor], is_first: torch.Tensor) -> list[torch.Tensor]:
    leaves = [x.clone().requires_grad_() for x in given]
    with backend(name):
        y, after = gated_delta_rule(*leaves[:5], is_first, DeltaRuleState(leaves[5]))
    (y.square().sum() + after.fast_weights.square().sum()).backward()
    return [y, after.fast_weights, *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("length", [1, 31, 32, 33, 70])
@pytest.mark.parametrize("fading", [0.0, 0.3, 1000.0])
def test_chunks_equal_the_reference(length, fading):
    given, is_first = inputs(length, fading), torch.zeros(length, B, dtype=torch.bool)
    is_first[0, 1] = is_first[length // 2, 1] = is_first[-1, 2] = True
    for one, other in zip(*(results(n, given, is_first) for n in BACKENDS), strict=True):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("where", range(5))
def test_nan_stays_in_its_episode(where):
    given, is_first = inputs(40, 0.3), torch.zeros(40, B, dtype=torch.bool)
    is_first[20, 1] = True
    clean = results("chunked", given, is_first)
    given[where][10, 1] = torch.nan
    y, after, *_ = results("chunked", given, is_first)
    assert y[10, 1].isnan().all()
    for one, other in ((y[20:], clean[0][20:]), (y[:, [0, 2]], clean[0][:, [0, 2]])):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    torch.testing.assert_close(after, clean[1], atol=1e-12, rtol=0)
