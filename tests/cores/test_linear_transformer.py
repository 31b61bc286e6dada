"""The normalised linear transformer: a weighted mean over its episode, and its gradient."""

import pytest
import torch
from test_equations import B, D, H, T
from torch import nn

from fastweights.cores.linear_transformer import LinearTransformer


def weighted_means(memory, x, episode, phi):
    """Compute Katharopoulos et al. 2020, eqs. 8 and 9, for one stream [T, D], without a recurrence.

    Row t is the mean of the values of its episode's rows up to t, weighted by phi(q) . phi(k).
    """
    rows = memory.slow_net.project.weight.view(H, 3, D, H * D)
    q, k, v = torch.einsum("hpdn,tn->phtd", rows, x)
    weights = torch.einsum("htd,hjd->htj", phi(q), phi(k))
    seen = (episode[:, None] == episode[None, :]).tril()
    weights = torch.where(seen, weights, 0)
    y = torch.einsum("htj,hjd->thd", weights, v)
    return (y / (weights.sum(-1).T[..., None] + 1e-6)).flatten(1)


def elu_plus_one(x):
    return nn.functional.elu(x) + 1


POSITIVE = {
    "elu": elu_plus_one,
    "elu_sum": lambda x: elu_plus_one(x) / (elu_plus_one(x).sum(-1, keepdim=True) + 1e-5),
    "softmax": lambda x: x.softmax(-1),
}


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("resets", [(), (0,), (3,), (2, 5)])
@pytest.mark.parametrize("cut", [None, 4])
def test_a_normalised_linear_transformer_is_a_weighted_mean_with_its_gradient(name, resets, cut):
    memory = LinearTransformer(H * D, H, name, "key_sum").double()
    x = (2 * torch.randn(T, B, H * D, dtype=torch.float64)).requires_grad_()
    is_first = torch.zeros(T, B, dtype=torch.bool)
    is_first[list(resets), 1] = True
    y, state = memory.unroll(x[:cut], memory.initial_state(B), is_first[:cut])
    if cut:
        y = torch.cat([y, memory.unroll(x[cut:], state, is_first[cut:])[0]])
    episodes = is_first.cumsum(0)
    streams = [weighted_means(memory, x[:, b], episodes[:, b], POSITIVE[name]) for b in range(B)]
    expected = torch.stack(streams, 1)
    torch.testing.assert_close(y, expected, atol=1e-10, rtol=0)
    wanted = [x, *memory.parameters()]
    gradients = (torch.autograd.grad(one.square().sum(), wanted) for one in (y, expected))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


def test_a_mean_of_one_value_is_that_value():
    """The same value is written at every step; an unnormalised sum would grow with each."""
    memory = LinearTransformer(H * D, H, "elu", "key_sum").double()
    x = torch.randn(1, B, H * D, dtype=torch.float64).expand(T, B, H * D)
    y, _ = memory.unroll(x, memory.initial_state(B), torch.zeros(T, B, dtype=torch.bool))
    torch.testing.assert_close(y, memory.slow_net(x)[2].flatten(-2), atol=1e-4, rtol=1e-4)
