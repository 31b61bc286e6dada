"""Stack RNN: an Elman network that pushes to and pops from continuous stacks."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.cores.kind import alone
from fastweights.kernels import loop_over_time, step_once

ACTIONS = 3  # push, no-op, pop


@dataclass(frozen=True, kw_only=True)
class StackRNNConfig:
    """Sizes of the network and of its stacks."""

    width: int = 256
    """Number of units."""
    stacks: int = 1
    """Number of stacks."""
    stack_width: int = 8
    """Size of the vector in each slot of a stack (8: Delétang et al. 2023)."""
    stack_depth: int = 64
    """Number of slots in a stack; vectors pushed below the last slot are lost."""


class StackRNNState(NamedTuple):
    """Hidden units, and N stacks of M slots of S numbers, the top first."""

    hidden: Float[Tensor, "B E"]
    stacks: Float[Tensor, "B N M S"]


class StackRNN(Core):
    """The network reads the tops, then chooses for each stack how much to push, keep and pop.

    The new stack is the mean of the three possible results, weighted by their probabilities. Push
    values are linear and the controller is a tanh network. Delétang et al. use the same with a ReLU
    controller; Joulin & Mikolov use sigmoids for both.
    """

    equation = "h_t = tanh(W x_t + P tops + U h_(t-1) + b);  S_t = mean of push(v_t), no-op, pop"
    source = "Joulin & Mikolov 2015; Delétang et al. 2023"

    def __init__(self, input_size: int, config: StackRNNConfig | None = None):
        super().__init__()
        config = config or StackRNNConfig()
        self.input_size, self.output_size = input_size, config.width
        self.shape = config.stacks, config.stack_depth, config.stack_width
        tops = config.stacks * config.stack_width
        self.cell = nn.RNNCell(input_size + tops, config.width)
        self.actions = nn.Linear(config.width, config.stacks * ACTIONS)
        self.values = nn.Linear(config.width, tops)

    def initial_state(self, batch_size: int) -> StackRNNState:
        """Return zero hidden units [B, E] and empty stacks [B, N, M, S]."""
        zeros = self.cell.weight_hh.new_zeros
        return StackRNNState(zeros(batch_size, self.output_size), zeros(batch_size, *self.shape))

    def step(
        self, x: Float[Tensor, "B D"], state: StackRNNState
    ) -> tuple[Float[Tensor, "B E"], StackRNNState]:
        """Read the tops, update the hidden units and move the stacks."""
        check_step(self, x, state)
        hidden, state = step_once(self._step, (self._from_input(x),), state)
        return hidden.clone(), state  # the caller may write into y

    def unroll(
        self, x: Float[Tensor, "T B D"], state: StackRNNState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], StackRNNState]:
        """Multiply all inputs at once, then step through time; see `Core.unroll`."""
        check_inputs(self, x, state, is_first)
        z = self._from_input(x)
        return loop_over_time(self._step, (z,), is_first, state, empty=z)

    def inspect(self, x: Float[Tensor, "B D"], state: StackRNNState) -> list[dict[str, Tensor]]:
        """Return `actions` [B, N, 3] (push, keep, pop), and the state after the step."""
        (after,) = super().inspect(x, state)
        return [{"actions": self._actions(after["hidden"])} | after]

    def _from_input(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch E"]:
        bias = self.cell.bias_ih + self.cell.bias_hh
        return F.linear(x, self.cell.weight_ih[:, : self.input_size], bias)

    def _step(
        self, z: Float[Tensor, "B E"], state: StackRNNState
    ) -> tuple[Float[Tensor, "B E"], StackRNNState]:
        tops = state.stacks[:, :, 0].flatten(1)
        z = z + F.linear(tops, self.cell.weight_ih[:, self.input_size :])
        hidden = (z + F.linear(state.hidden, self.cell.weight_hh)).tanh()
        return hidden, StackRNNState(hidden, self._moved(state.stacks, hidden))

    def _moved(
        self, stacks: Float[Tensor, "B N M S"], hidden: Float[Tensor, "B E"]
    ) -> Float[Tensor, "B N M S"]:
        """Mix each slot with the one above, itself and the one below: push, no-op, pop."""
        value = self.values(hidden).unflatten(-1, (self.shape[0], 1, self.shape[2]))
        longer = torch.cat([value, stacks, torch.zeros_like(value)], 2)
        push, keep, pop = self._actions(hidden)[..., None, None].unbind(2)
        return push * longer[:, :, :-2] + keep * stacks + pop * longer[:, :, 2:]

    def _actions(self, hidden: Float[Tensor, "B E"]) -> Float[Tensor, "B N 3"]:
        return self.actions(hidden).unflatten(-1, (self.shape[0], ACTIONS)).softmax(-1)


KIND = alone(StackRNN, "Elman network with stacks", StackRNNConfig())
