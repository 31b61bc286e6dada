"""The delta rule: W_t = W_{t-1} + k_t (beta_t (v_t - W_{t-1}^T k_t))^T, y_t = W_t^T q_t.

Source: Schlag et al. 2021 (DeltaNet); Irie et al. 2021, eqs. 7-10.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.fast_weights import delta_write, read_memory
from fastweights.kernels.recurrence import loop_over_time


class DeltaRuleState(NamedTuple):
    """The fast weights W."""

    fast_weights: Float[Tensor, "B H K V"]


def step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H K"],
    v: Float[Tensor, "B H V"],
    beta: Float[Tensor, "B H"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "B H V"], DeltaRuleState]:
    """Compute one step: write with strength `beta`, then read."""
    weights = delta_write(state.fast_weights, k, v, beta)
    return read_memory(weights, q), DeltaRuleState(weights)


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    beta: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "T B H V"], DeltaRuleState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    return loop_over_time(step, (q, k, v, beta), is_first, state, empty=v)
