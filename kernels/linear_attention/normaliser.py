"""Linear attention divided by the sum of its weights: y_t = W_t^T q_t / (z_t . q_t + epsilon).

z_t = z_{t-1} + k_t is itself linear attention with a value of 1 at every step, so the same kernels
compute it, with a single value column.
Source: Katharopoulos et al. 2020, eqs. 9-12; epsilon as in their code.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.fast_weights import add_outer, read_memory
from fastweights.kernels.linear_attention.operation import linear_attention
from fastweights.kernels.linear_attention.reference import LinearAttentionState
from fastweights.kernels.machinery.composed import composed

EPSILON = 1e-6


class NormalisedState(NamedTuple):
    """The fast weights W and the sum of keys."""

    fast_weights: Float[Tensor, "B H K V"]
    key_sum: Float[Tensor, "B H K"]


def normalised_step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H K"],
    v: Float[Tensor, "B H V"],
    state: NormalisedState,
) -> tuple[Float[Tensor, "B H V"], NormalisedState]:
    """Compute one step: write W and z, then read both."""
    weights, key_sum = add_outer(state.fast_weights, k, v), state.key_sum + k
    total = (key_sum * q).sum(-1, keepdim=True)
    return read_memory(weights, q) / (total + EPSILON), NormalisedState(weights, key_sum)


@composed("normalised_linear_attention")
def normalised_linear_attention(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    is_first: Bool[Tensor, "T B"],
    state: NormalisedState,
) -> tuple[Float[Tensor, "T B H V"], NormalisedState]:
    """Unroll as `linear_attention` does; use positive feature maps, whose sums do not vanish."""
    weighted, fast = linear_attention(q, k, v, is_first, LinearAttentionState(state.fast_weights))
    ones = torch.ones_like(v[..., :1])
    sums = LinearAttentionState(state.key_sum.unsqueeze(-1))
    total, sums = linear_attention(q, k, ones, is_first, sums)
    y = weighted / (total + EPSILON)
    return y, NormalisedState(fast.fast_weights, sums.fast_weights.squeeze(-1))
