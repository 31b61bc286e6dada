"""The LSTM with resets inside the unroll.

    i, f, g, o = split(z_t + W_h h_{t-1})                    z_t = W_x x_t + b, for all t at once
    c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)          h_t = sigmoid(o) * tanh(c_t)

Gate order and parameter shapes follow PyTorch. The axis D4 is 4 * D.
Source: Hochreiter & Schmidhuber 1997; Gers et al. 2000.
"""

from functools import partial
from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.recurrence import loop_over_time


class LSTMState(NamedTuple):
    """The hidden state and the cell."""

    hidden: Float[Tensor, "B D"]
    cell: Float[Tensor, "B D"]


def step(
    z: Float[Tensor, "B D4"], state: LSTMState, hidden_weights: Float[Tensor, "D4 D"]
) -> tuple[Float[Tensor, "B D"], LSTMState]:
    """Compute one step; z is the input's contribution to the four gates, including biases."""
    i, f, g, o = gates(z, state, hidden_weights)
    cell = f * state.cell + i * g
    hidden = o * cell.tanh()
    return hidden, LSTMState(hidden, cell)


def gates(
    z: Float[Tensor, "B D4"], state: LSTMState, hidden_weights: Float[Tensor, "D4 D"]
) -> tuple[Tensor, ...]:
    """Return sigmoid(i), sigmoid(f), tanh(g) and sigmoid(o), each [B, D]."""
    i, f, g, o = (z + F.linear(state.hidden, hidden_weights)).chunk(4, -1)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()


def unroll(
    z: Float[Tensor, "T B D4"],
    is_first: Bool[Tensor, "T B"],
    state: LSTMState,
    hidden_weights: Float[Tensor, "D4 D"],
) -> tuple[Float[Tensor, "T B D"], LSTMState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    one_step = partial(step, hidden_weights=hidden_weights)
    return loop_over_time(one_step, (z,), is_first, state, empty=z[..., : state.cell.shape[-1]])
