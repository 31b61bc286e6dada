"""Linear attention with decay: W_t = a_t W_{t-1} + k_t v_t^T, y_t = W_t^T q_t.

The decay a_t, one number per head, is given by its logarithm.
Source: Yang et al. 2024 (Gated linear attention), with a scalar gate as in Dao & Gu 2024 (Mamba-2)
and Beck et al. 2024 (mLSTM).
"""

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.linear_attention.reference import LinearAttentionState
from fastweights.kernels.linear_attention.reference import step as sum_step
from fastweights.kernels.recurrence import loop_over_time


def step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H K"],
    v: Float[Tensor, "B H V"],
    log_decay: Float[Tensor, "B H"],
    state: LinearAttentionState,
) -> tuple[Float[Tensor, "B H V"], LinearAttentionState]:
    """Compute one step: decay, write, then read."""
    faded = LinearAttentionState(log_decay.exp()[..., None, None] * state.fast_weights)
    return sum_step(q, k, v, faded)


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    log_decay: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: LinearAttentionState,
) -> tuple[Float[Tensor, "T B H V"], LinearAttentionState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    return loop_over_time(step, (q, k, v, log_decay), is_first, state, empty=v)
