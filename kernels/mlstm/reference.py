"""xLSTM's matrix memory (mLSTM): linear attention with unbounded gates, stored with a scale.

    C_t = f_t C_(t-1) + i_t k_t v_t^T,   n_t = f_t n_(t-1) + i_t k_t
    y_t = o_t * C_t^T q_t / max(|n_t . q_t|, 1)

The input gate is an exponential and thus unbounded, so C and n are stored divided by exp(m_t):

    m_t = max(log f_t + m_(t-1), log i_t, 0),   W_t = C_t exp(-m_t),   s_t = n_t exp(-m_t)
    y_t = o_t * W_t^T q_t / max(|s_t . q_t|, exp(-m_t))

Any m gives the same y; this m keeps every factor at most 1. A fresh memory, C = n = 0, is zero at
any scale. Source: Beck et al. 2024, eqs. 19-27, where m may be negative as well.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.fast_weights import add_outer, read_memory
from fastweights.kernels.recurrence import loop_over_time


class MLSTMState(NamedTuple):
    """The fast weights, the sum of keys and the scale of both."""

    fast_weights: Float[Tensor, "B H K V"]
    key_sum: Float[Tensor, "B H K"]
    log_scale: Float[Tensor, "B H"]  # C = fast_weights exp(log_scale), n = key_sum exp(log_scale)


def divided(
    answer: Float[Tensor, "*batch H V"],
    weight: Float[Tensor, "*batch H"],
    log_scale: Float[Tensor, "*batch H"],
) -> Float[Tensor, "*batch H V"]:
    """Return the memory's output divided by |s_t . q_t|, or by its lower bound exp(-m_t).

    In float32 the bound underflows to 0 from m_t = 104 on; an output of 0 then stays 0.
    """
    divisor = torch.maximum(weight.abs(), (-log_scale).exp()).unsqueeze(-1)
    return answer / divisor.where((divisor != 0) | (answer != 0), 1)


def step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H K"],
    v: Float[Tensor, "B H V"],
    log_input: Float[Tensor, "B H"],
    log_forget: Float[Tensor, "B H"],
    output_gate: Float[Tensor, "B H V"],
    state: MLSTMState,
) -> tuple[Float[Tensor, "B H V"], MLSTMState]:
    """Compute one step: decay, write, then read."""
    faded = log_forget + state.log_scale
    log_scale = torch.maximum(faded, log_input).clamp(min=0)
    kept, added = (faded - log_scale).exp(), (log_input - log_scale).exp().unsqueeze(-1)
    weights = add_outer(kept[..., None, None] * state.fast_weights, k, added * v)
    key_sum = kept.unsqueeze(-1) * state.key_sum + added * k
    y = output_gate * divided(read_memory(weights, q), (key_sum * q).sum(-1), log_scale)
    return y, MLSTMState(weights, key_sum, log_scale)


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    log_input: Float[Tensor, "T B H"],
    log_forget: Float[Tensor, "T B H"],
    output_gate: Float[Tensor, "T B H V"],
    is_first: Bool[Tensor, "T B"],
    state: MLSTMState,
) -> tuple[Float[Tensor, "T B H V"], MLSTMState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    inputs = (q, k, v, log_input, log_forget, output_gate)
    return loop_over_time(step, inputs, is_first, state, empty=v)
