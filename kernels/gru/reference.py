"""The gated recurrent unit, in PyTorch's version.

    r_t = sigmoid(W_r x_t + b_r + U_r h_{t-1} + c_r)
    u_t = sigmoid(W_u x_t + b_u + U_u h_{t-1} + c_u)
    n_t = tanh(W_n x_t + b_n + r_t * (U_n h_{t-1} + c_n))
    h_t = (1 - u_t) * n_t + u_t * h_{t-1}

Gate order (r, u, n) and parameter shapes follow PyTorch; the axis D3 is 3 * D.
Source: Cho et al. 2014.
"""

from functools import partial
from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.recurrence import loop_over_time


class GRUState(NamedTuple):
    """The hidden state."""

    hidden: Float[Tensor, "B D"]


class GRUWeights(NamedTuple):
    """Parameters, in the order of PyTorch's kernel."""

    of_input: Float[Tensor, "D3 E"]
    of_hidden: Float[Tensor, "D3 D"]
    input_bias: Float[Tensor, " D3"]
    hidden_bias: Float[Tensor, " D3"]


def step(
    x: Float[Tensor, "B E"], state: GRUState, weights: GRUWeights
) -> tuple[Float[Tensor, "B D"], GRUState]:
    """Compute one step; the new hidden vector is also the output."""
    _, update, candidate = gates(x, state, weights)
    hidden = (1 - update) * candidate + update * state.hidden
    return hidden, GRUState(hidden)


def gates(x: Float[Tensor, "B E"], state: GRUState, weights: GRUWeights) -> tuple[Tensor, ...]:
    """Return r, u and n, each [B, D]."""
    from_input = F.linear(x, weights.of_input, weights.input_bias).chunk(3, -1)
    from_hidden = F.linear(state.hidden, weights.of_hidden, weights.hidden_bias).chunk(3, -1)
    reset, update = (
        (x + h).sigmoid() for x, h in zip(from_input[:2], from_hidden[:2], strict=True)
    )
    return reset, update, (from_input[2] + reset * from_hidden[2]).tanh()


def unroll(
    x: Float[Tensor, "T B E"],
    is_first: Bool[Tensor, "T B"],
    state: GRUState,
    weights: GRUWeights,
) -> tuple[Float[Tensor, "T B D"], GRUState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    empty = x if len(x) else F.linear(x, weights.of_input)[..., : state.hidden.shape[1]]
    return loop_over_time(partial(step, weights=weights), (x,), is_first, state, empty)
