"""Chunked linear attention: Y = Q S + (Q K^T, masked) V, then S <- S + K^T V.

Source: Hua et al. 2022 (chunked linear attention); masks: kernels/chunks.py.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.chunks import Chunk, keep_where, loop_over_chunks, read_live
from fastweights.kernels.linear_attention.reference import LinearAttentionState


def step(
    chunk: Chunk, q: Tensor, k: Tensor, v: Tensor, weights: Tensor
) -> tuple[Float[Tensor, "B H C V"], Float[Tensor, "B H K V"]]:
    """Compute one chunk: its outputs, and the weights after it."""
    scores = keep_where(chunk.visible, q @ k.mT)
    y = read_live(chunk.live, q, weights) + scores @ v
    return y, keep_where(chunk.carries, weights) + keep_where(chunk.last, k).mT @ v


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    is_first: Bool[Tensor, "T B"],
    state: LinearAttentionState,
) -> tuple[Float[Tensor, "T B H V"], LinearAttentionState]:
    """Unroll; equals a loop of `reference.step`."""
    y, weights = loop_over_chunks(step, (q, k, v), is_first, state.fast_weights, empty=v)
    return y, LinearAttentionState(weights)
