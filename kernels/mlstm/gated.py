"""The mLSTM as gated linear attention: first the scale, then the memory and the sum of keys.

The scale m_t depends only on the gates, so it is computed before the memory is unrolled. The key
sum is a memory with one row, written with a key of 1 and read with a query of 1.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.chunks import keep_where
from fastweights.kernels.gated_linear_attention import LinearAttentionState, gated_linear_attention
from fastweights.kernels.machinery.composed import composed
from fastweights.kernels.mlstm.reference import MLSTMState, divided


@composed("mlstm")
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
    """Unroll; equals a loop of `reference.step`."""
    before, log_scale = log_scales(log_input, log_forget, is_first, state.log_scale)
    log_kept = log_forget + before - log_scale
    added, one = (log_input - log_scale).exp().unsqueeze(-1), torch.ones_like(q[..., :1])

    weights = LinearAttentionState(state.fast_weights)
    key_sum = LinearAttentionState(state.key_sum.unsqueeze(-2))
    y, weights = gated_linear_attention(q, k, added * v, log_kept, is_first, weights)
    sums, key_sum = gated_linear_attention(one, one, added * k, log_kept, is_first, key_sum)
    y = output_gate * divided(y, (sums * q).sum(-1), log_scale)
    last = torch.cat([state.log_scale.unsqueeze(0), log_scale])[-1]
    return y, MLSTMState(weights.fast_weights, key_sum.fast_weights.squeeze(-2), last)


def log_scales(
    log_input: Float[Tensor, "T B H"],
    log_forget: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    initial: Float[Tensor, "B H"],
) -> tuple[Float[Tensor, "T B H"], Float[Tensor, "T B H"]]:
    """Return m_{t-1} (0 at a first row) and m_t for every row.

    m_t = max(log_forget_t + m_{t-1}, log_input_t, 0) is computed by doubling. The combined
    effect of 1, 2, 4, ... rows of an episode on the scale is again a sum and a maximum.
    """
    least, fresh = log_input.clamp(min=0), is_first.unsqueeze(-1)
    given = torch.cat([initial.unsqueeze(0), torch.zeros_like(least)])[:-1]
    starts = torch.cat([torch.ones_like(fresh[:1]), fresh[1:]])
    from_start = torch.maximum(log_forget + keep_where(~fresh, given), least)
    scale, fading = torch.where(starts, from_start, least), log_forget
    episodes, back = is_first.cumsum(0).unsqueeze(-1), 1
    while back < len(scale):
        same = episodes[back:] == episodes[:-back]
        longer = torch.maximum(scale[:-back] + fading[back:], scale[back:])
        further = fading[:-back] + fading[back:]
        scale = torch.cat([scale[:back], torch.where(same, longer, scale[back:])])
        fading = torch.cat([fading[:back], torch.where(same, further, fading[back:])])
        back *= 2
    before = torch.cat([initial.unsqueeze(0), scale])[:-1]
    return keep_where(~fresh, before), scale
