"""Attention in one call against its definition, a loop of steps."""

import pytest
import torch

from fastweights import kernels
from fastweights.kernels.attention import Window, attention

B, H, M, K, V = 2, 1, 8, 4, 3
SEEN = 2  # steps before the unroll: the other slots of the window do not count


def results(backend: str, time: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(time, B, H, K), (time, B, H, K), (time, B, H, V), (B, H, M, K), (B, H, M, V)]
    given = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    q, k, v, keys, values = leaves = [tensor.requires_grad_() for tensor in given]
    count = torch.full((B, 1), float(SEEN), dtype=torch.float64)
    is_first = torch.zeros(time, B, dtype=torch.bool)
    is_first[time // 2, 1] = True
    with kernels.backend(backend):
        y, after = attention(q, k, v, is_first, Window(keys, values, count))
    loss = y.square().sum() + after.keys.square().sum() + after.values.square().sum()
    return [y, *after, *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("time", [1, 5, 12])
def test_slots_that_do_not_count_have_no_gradient(time):
    found, right = results("auto", time), results("reference", time)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    for grad in right[-2:]:
        assert not grad[:, :, : M - SEEN].any()
