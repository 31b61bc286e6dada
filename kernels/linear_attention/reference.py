"""Linear attention, the sum rule: W_t = W_{t-1} + k_t v_t^T, y_t = W_t^T q_t.

Source: Katharopoulos et al. 2020; as a fast-weight programmer, Irie et al. 2021, eqs. 6-7.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.fast_weights import add_outer, read_memory
from fastweights.kernels.recurrence import loop_over_time


class LinearAttentionState(NamedTuple):
    """The fast weights W."""

    fast_weights: Float[Tensor, "B H K V"]


def step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H K"],
    v: Float[Tensor, "B H V"],
    state: LinearAttentionState,
) -> tuple[Float[Tensor, "B H V"], LinearAttentionState]:
    """Compute one step: write, then read."""
    weights = add_outer(state.fast_weights, k, v)
    return read_memory(weights, q), LinearAttentionState(weights)


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    is_first: Bool[Tensor, "T B"],
    state: LinearAttentionState,
) -> tuple[Float[Tensor, "T B H V"], LinearAttentionState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    return loop_over_time(step, (q, k, v), is_first, state, empty=v)
