"""Chunked gated linear attention: linear attention's products, with decay.

Between rows j < i of one episode the memory decays by d_ij = exp(sum of log a over j < l <= i),
and from the chunk's start to row i by d_i = exp(sum over all rows up to i):

    Y = d_i Q S + tril(Q K^T * d) V,        S <- d_C S + (d_C. K)^T V

Source: Yang et al. 2024 (Gated linear attention), section 4; masks and decays: kernels/chunks.py.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.chunks import (
    Chunk,
    fading,
    finite_if_forgetting,
    keep_where,
    loop_over_chunks,
    read_live,
)
from fastweights.kernels.linear_attention.reference import LinearAttentionState


def step(
    chunk: Chunk, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, weights: Tensor
) -> tuple[Float[Tensor, "B H C V"], Float[Tensor, "B H K V"]]:
    """Compute one chunk: its outputs, and the weights after it."""
    left = fading(log_decay)
    scores = keep_where(chunk.visible, q @ k.mT * left.between)
    y = left.since_start * read_live(chunk.live, q, weights) + scores @ v
    carried = left.through * keep_where(chunk.carries, weights)
    return y, carried + keep_where(chunk.last, left.to_end * k).mT @ v


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    log_decay: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: LinearAttentionState,
) -> tuple[Float[Tensor, "T B H V"], LinearAttentionState]:
    """Unroll; equals a loop of `reference.step`."""
    inputs = (q, k, v, finite_if_forgetting(log_decay))
    y, weights = loop_over_chunks(step, inputs, is_first, state.fast_weights, empty=v)
    return y, LinearAttentionState(weights)
