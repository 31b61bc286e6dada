"""The simple recurrent network: h_t = tanh(W x_t + b + U h_{t-1} + c).

Parameters are PyTorch's. Source: Elman 1990.
"""

from functools import partial
from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.recurrence import loop_over_time


class ElmanState(NamedTuple):
    hidden: Float[Tensor, "B D"]


class ElmanWeights(NamedTuple):
    """In the order in which PyTorch's kernel takes them."""

    of_input: Float[Tensor, "D E"]
    of_hidden: Float[Tensor, "D D"]
    input_bias: Float[Tensor, " D"]
    hidden_bias: Float[Tensor, " D"]


def step(
    x: Float[Tensor, "B E"], state: ElmanState, weights: ElmanWeights
) -> tuple[Float[Tensor, "B D"], ElmanState]:
    """One step; the new hidden vector is the output, too."""
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
    empty = x.new_empty(0, *state.hidden.shape)
    return loop_over_time(partial(step, weights=weights), (x,), is_first, state, empty)
