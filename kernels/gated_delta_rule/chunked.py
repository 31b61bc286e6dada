"""The chunked gated delta rule: the delta rule's triangular system, with decayed products.

Between rows j < i of one episode the memory decays by d_ij = exp(sum of log a over j < l <= i),
and from the chunk's start to row i by d_i = exp(sum over all rows up to i):

    (I + tril(diag(beta) (K K^T * d), -1)) U = diag(beta) (V - d_i K S)
    Y = d_i Q S + tril(Q K^T * d) U,        S <- d_C S + (d_C. K)^T U

Source: Yang et al. 2025, section 3.3; masks and decays: kernels/chunks.py.
"""

import torch
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
from fastweights.kernels.delta_rule.chunked import solve
from fastweights.kernels.delta_rule.reference import DeltaRuleState


def step(
    chunk: Chunk,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    log_decay: Tensor,
    weights: Tensor,
) -> tuple[Float[Tensor, "B H C V"], Float[Tensor, "B H K V"]]:
    """Compute one chunk: its outputs, and the weights after it."""
    beta, left = beta.unsqueeze(-1), fading(log_decay)
    wanted = beta * (v - left.since_start * read_live(chunk.live, k, weights))
    system = beta * (k @ k.mT) * left.between
    old = solve(system, wanted, chunk.live, chunk.before)
    new = solve(system, wanted, ~chunk.live, chunk.before)
    scores = keep_where(chunk.visible, q @ k.mT * left.between)
    y = torch.where(chunk.live, scores @ old, scores @ new)
    y = y + left.since_start * read_live(chunk.live, q, weights)
    update = keep_where(chunk.last, torch.where(chunk.live, old, new))
    carried = left.through * keep_where(chunk.carries, weights)
    return y, carried + (left.to_end * k).mT @ update


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    beta: Float[Tensor, "T B H"],
    log_decay: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "T B H V"], DeltaRuleState]:
    """Unroll; equals a loop of `reference.step`."""
    inputs = (q, k, v, beta, finite_if_forgetting(log_decay))
    y, weights = loop_over_chunks(step, inputs, is_first, state.fast_weights, empty=v)
    return y, DeltaRuleState(weights)
