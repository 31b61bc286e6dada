"""Values wider than the compiled rows: the delta rule by columns is the delta rule."""

import pytest
import torch

from kernels.delta_rule import DeltaRuleState, reference, wide_delta_rule

T, B, H, K = 5, 3, 2, 4


@pytest.mark.parametrize("width", [1, 64, 65, 97, 130])
def test_columns_are_the_law(width):
    q, k = torch.rand(2, T, B, H, K, dtype=torch.float64).softmax(-1)
    v = torch.randn(T, B, H, width, dtype=torch.float64)
    beta, weights = torch.rand(T, B, H).double(), torch.randn(B, H, K, width).double()
    is_first = torch.zeros(T, B, dtype=torch.bool)
    is_first[2, 1] = is_first[0, 2] = True
    results = []
    for rule in (wide_delta_rule, reference.unroll):
        leaves = [x.clone().requires_grad_() for x in (q, k, v, beta, weights)]
        y, after = rule(*leaves[:4], is_first, DeltaRuleState(leaves[4]))
        (y.square().sum() + after.fast_weights.square().sum()).backward()
        results.append([y, after.fast_weights, *(leaf.grad for leaf in leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=0)
