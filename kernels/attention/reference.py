"""Softmax attention over the last M steps of an episode, including the current one.

    y_t = sum_j a_j v_j,   a = softmax_j (q_t . k_j / sqrt(K)),   j in the window

Source: Vaswani et al. 2017, eq. 1; the window as in Dai et al. 2019 (Transformer-XL).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.chunks import keep_where
from fastweights.kernels.fast_weights import read_memory
from fastweights.kernels.recurrence import loop_over_time


class Window(NamedTuple):
    """The last M steps, newest last. A slot is in use if its step is in the current episode."""

    keys: Float[Tensor, "B H M K"]
    values: Float[Tensor, "B H M V"]
    count: Float[Tensor, "B 1"]  # steps since the episode began


def weights(q: Float[Tensor, "B H K"], window: Window) -> Float[Tensor, "B H M"]:
    """Return the attention weight of each slot: zero for unused slots, summing to 1."""
    scores = (window.keys @ q.unsqueeze(-1)).squeeze(-1) / q.shape[-1] ** 0.5
    used = in_use(window.keys.shape[2], window.count)
    return scores.masked_fill(~used.unsqueeze(1), -torch.inf).softmax(-1)


def in_use(size: int, count: Float[Tensor, "B 1"]) -> Bool[Tensor, "B M"]:
    """Return which slots of a window of size `size` hold a step of the current episode."""
    age = torch.arange(size - 1, -1, -1, device=count.device)
    return age < count.round()


def step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H K"],
    v: Float[Tensor, "B H V"],
    state: Window,
) -> tuple[Float[Tensor, "B H V"], Window]:
    """Compute one step: replace the oldest key and value by the new ones, then read."""
    window = Window(_shift(state.keys, k), _shift(state.values, v), state.count + 1)
    return read_memory(window.values, weights(q, window)), window


def _shift(slots: Float[Tensor, "B H M K"], row: Float[Tensor, "B H K"]) -> Tensor:
    return torch.cat([slots[:, :, 1:], row.unsqueeze(2)], 2)


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    is_first: Bool[Tensor, "T B"],
    state: Window,
) -> tuple[Float[Tensor, "T B H V"], Window]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`.

    Unused slots are returned as zeros and have no gradient.
    """
    used = in_use(state.keys.shape[2], state.count)[:, None, :, None]
    slots = (keep_where(used, slots) for slots in (state.keys, state.values))
    state = Window(*slots, state.count)
    return loop_over_time(step, (q, k, v), is_first, state, empty=v)
