"""The simple recurrent network: h_t = tanh(W x_t + b + U h_{t-1} + c).

Parameters follow PyTorch. Source: Elman 1990.
"""

from functools import partial
from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.recurrence import loop_over_time


class ElmanState(NamedTuple):
    """The hidden state."""

    hidden: Float[Tensor, "B D"]


class ElmanWeights(NamedTuple):
    """Parameters, in the order of PyTorch's kernel."""

    of_input: Float[Tensor, "D E"]
    of_hidden: Float[Tensor, "D D"]
    input_bias: Float[Tensor, " D"]
    hidden_bias: Float[Tensor, " D"]


def step(
    x: Float[Tensor, "B E"], state: ElmanState, weights: ElmanWeights
) -> tuple[Float[Tensor, "B D"], ElmanState]:
    """Compute one step; the new hidden vector is also the output."""
    from_input = F.linear(x, weights.of_input, weights.input_bias)
    from_hidden = F.linear(state.hidden, weights.of_hidden, weights.hidden_bias)
    hidden = (from_input + from_hidden).tanh()
    return hidden, ElmanState(hidden)


def unroll(
    x: Float[Tensor, "T B E"],
    is_first: Bool[Tensor, "T B"],
    state: ElmanState,
    weights: ElmanWeights,
) -> tuple[Float[Tensor, "T B D"], ElmanState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    empty = x if len(x) else F.linear(x, weights.of_input)[..., : state.hidden.shape[1]]
    return loop_over_time(partial(step, weights=weights), (x,), is_first, state, empty)
