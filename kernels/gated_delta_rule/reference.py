"""The delta rule with decay.

    W_t = a_t W_{t-1} + k_t (beta_t (v_t - a_t W_{t-1}^T k_t))^T,  y_t = W_t^T q_t

The decay a_t in (0, 1), given by its logarithm, multiplies a head's whole memory before the delta
rule writes to it.
Source: Yang, Kautz & Hatamizadeh 2025 (Gated Delta Networks).
"""

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.delta_rule.reference import DeltaRuleState
from fastweights.kernels.delta_rule.reference import step as delta_step
from fastweights.kernels.recurrence import loop_over_time


def step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H K"],
    v: Float[Tensor, "B H V"],
    beta: Float[Tensor, "B H"],
    log_decay: Float[Tensor, "B H"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "B H V"], DeltaRuleState]:
    """Compute one step: decay, write with strength `beta`, then read."""
    faded = DeltaRuleState(log_decay.exp()[..., None, None] * state.fast_weights)
    return delta_step(q, k, v, beta, faded)


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    beta: Float[Tensor, "T B H"],
    log_decay: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "T B H V"], DeltaRuleState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    return loop_over_time(step, (q, k, v, beta, log_decay), is_first, state, empty=v)
