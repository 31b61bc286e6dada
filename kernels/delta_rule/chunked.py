"""The chunked delta rule: one triangular system gives the updates U of a whole chunk.

    (I + tril(diag(beta) K K^T, -1)) U = diag(beta) (V - K S)
    Y = Q S + tril(Q K^T) U,        S <- S + K^T U

Source: Yang et al. 2024 (Parallelizing linear transformers with the delta rule); masks:
kernels/chunks.py.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.chunks import Chunk, keep_where, loop_over_chunks, read_live
from fastweights.kernels.delta_rule.reference import DeltaRuleState


def step(
    chunk: Chunk, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, weights: Tensor
) -> tuple[Float[Tensor, "B H C V"], Float[Tensor, "B H K V"]]:
    """Compute one chunk: its outputs, and the weights after it."""
    beta = beta.unsqueeze(-1)
    system = beta * k @ k.mT
    wanted = beta * (v - read_live(chunk.live, k, weights))
    # Solve the rows before and after a reset separately, so that no NaN crosses the reset.
    old = solve(system, wanted, chunk.live, chunk.before)
    new = solve(system, wanted, ~chunk.live, chunk.before)
    scores = keep_where(chunk.visible, q @ k.mT)
    y = read_live(chunk.live, q, weights) + torch.where(chunk.live, scores @ old, scores @ new)
    update = keep_where(chunk.last, torch.where(chunk.live, old, new))
    return y, keep_where(chunk.carries, weights) + k.mT @ update


def solve(system: Tensor, wanted: Tensor, rows: Tensor, before: Tensor) -> Tensor:
    """Return the updates of the selected rows, and zeros for the others."""
    below_diagonal, sides = keep_where(before & rows, system), keep_where(rows, wanted)
    return keep_where(
        rows, torch.linalg.solve_triangular(below_diagonal, sides, upper=False, unitriangular=True)
    )


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    beta: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "T B H V"], DeltaRuleState]:
    """Unroll; equals a loop of `reference.step`."""
    y, weights = loop_over_chunks(step, (q, k, v, beta), is_first, state.fast_weights, empty=v)
    return y, DeltaRuleState(weights)
