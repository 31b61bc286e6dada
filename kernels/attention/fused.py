"""Attention in PyTorch's fused kernel: one call for the whole unroll and the preceding window.

A row sees the keys of its own episode that are less than M steps old, including its own: the last
`reach + 1` keys. If all streams start fresh and nothing else restricts the rows, as in sequence
tasks, this is the plain causal mask, which is built into the kernel. To check this, the host waits
for the device once.

A masked key's weight is 0, and 0 * NaN is NaN. Therefore non-finite queries, keys and values are
replaced by zeros, and the rows that see any are set to NaN afterwards (see kernels/chunks.py).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fastweights.kernels.attention import reference
from fastweights.kernels.attention.reference import Window, in_use
from fastweights.kernels.chunks import keep_where, without_spoilt
from fastweights.kernels.machinery.composed import composed
from fastweights.kernels.machinery.dispatch import requested_backend
from fastweights.kernels.machinery.signature import in_forward_mode, may_wait


@composed("attention")
def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    is_first: Bool[Tensor, "T B"],
    state: Window,
) -> tuple[Float[Tensor, "T B H V"], Window]:
    """Unroll; equals `reference.unroll`."""
    # The loop is faster for acting, and PyTorch's kernel has no forward mode.
    is_for_the_loop = len(is_first) <= 1 or in_forward_mode()
    if is_for_the_loop or requested_backend() == "reference":
        return reference.unroll(q, k, v, is_first, state)
    size = state.keys.shape[2]
    q, k, v = (x.movedim(0, 2) for x in (q, k, v))
    keys, values = torch.cat([state.keys, k], 2), torch.cat([state.values, v], 2)
    before = attention_positions(is_first, state.count)
    reach = before.detach().nan_to_num().round().long().clamp(max=size - 1).t()
    if _is_plain(is_first, state):
        y = _attend(q, k, v, None, reach)
    else:
        y = _attend(q, keys, values, _visible(reach, size), reach)
    after = before[-1:].t() + 1
    used = in_use(size, after)[:, None, :, None]
    window = (keep_where(used, slots[:, :, -size:]) for slots in (keys, values))
    return y.movedim(2, 0), Window(*window, after)


def attention_positions(
    is_first: Bool[Tensor, "T B"], count: Float[Tensor, "B 1"]
) -> Float[Tensor, "T B"]:
    """Return the number of steps since each row's episode began; `count` steps precede row 0."""
    rows = torch.arange(len(is_first), device=count.device)[:, None]
    began = torch.where(is_first, rows, -1).cummax(0).values
    return torch.where(began < 0, rows + count.t(), (rows - began).to(count.dtype))


def _is_plain(is_first: Bool[Tensor, "T B"], state: Window) -> bool:
    """Return whether the mask is plain causal; False if the host must not wait."""
    if len(is_first) > state.keys.shape[2] or not may_wait(is_first):
        return False
    remembers = (state.count[:, 0] != 0) & ~is_first[0]
    return not bool(remembers.any() | is_first[1:].any())


def _visible(reach: Int[Tensor, "B T"], size: int) -> Bool[Tensor, "B 1 T S"]:
    """Return which keys each row sees, among M slots followed by T rows."""
    rows = torch.arange(reach.shape[1], device=reach.device)
    age = rows[:, None] + size - torch.arange(size + len(rows), device=reach.device)
    return ((age >= 0) & (age <= reach.unsqueeze(2))).unsqueeze(1)


def _attend(
    q: Float[Tensor, "B H T K"],
    keys: Float[Tensor, "B H S K"],
    values: Float[Tensor, "B H S V"],
    seen: Bool[Tensor, "B 1 T S"] | None,
    reach: Int[Tensor, "B T"],
) -> Float[Tensor, "B H T V"]:
    (q, query_spoilt), (keys, key_spoilt), (values, value_spoilt) = map(
        without_spoilt, (q, keys, values)
    )
    y = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, is_causal=seen is None)
    spoilt = F.pad((key_spoilt | value_spoilt).cumsum(-1), (1, 0))
    own = torch.arange(keys.shape[2] - q.shape[2], keys.shape[2], device=q.device)
    oldest = (own - reach).unsqueeze(1).expand(-1, q.shape[1], -1)
    reached = spoilt[..., own + 1] > spoilt.gather(-1, oldest)
    return y.masked_fill((reached | query_spoilt).unsqueeze(-1), torch.nan)
