"""Long short-term memory (LSTM), the most common memory for agents."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.cores.kind import alone
from fastweights.kernels import step_once
from fastweights.kernels.lstm import LSTMState, gates, lstm
from fastweights.kernels.lstm import step as lstm_step


@dataclass(frozen=True, kw_only=True)
class LSTMConfig:
    """Size and initial forget bias of the LSTM."""

    width: int = 256  # Espeholt et al. 2018
    """Number of units."""
    forget_bias: float = 0.0
    """Number added to the forget gates' initial bias (Gers et al. 2000); use 1 or more for long
    memory."""


class LSTM(Core):
    """One LSTM layer with PyTorch's parameters and initialisation."""

    equation = "c_t = f_t * c_(t-1) + i_t * g_t;  y_t = o_t * tanh(c_t)"
    source = "Hochreiter & Schmidhuber 1997"

    def __init__(self, input_size: int, config: LSTMConfig | None = None):
        super().__init__()
        config = config or LSTMConfig()
        self.input_size, self.output_size = input_size, config.width
        self.cell = nn.LSTMCell(input_size, config.width)
        with torch.no_grad():
            self.cell.bias_ih[config.width : 2 * config.width] += config.forget_bias

    def initial_state(self, batch_size: int) -> LSTMState:
        """Return zero hidden units and zero cells, each [B, E]."""
        zeros = self.cell.weight_hh.new_zeros
        size = batch_size, self.output_size
        return LSTMState(zeros(size), zeros(size))

    def step(
        self, x: Float[Tensor, "B D"], state: LSTMState
    ) -> tuple[Float[Tensor, "B E"], LSTMState]:
        """Compute one step of the equation: y [B, E] and the next state."""
        check_step(self, x, state)
        hidden, state = step_once(lstm_step, (self._from_input(x),), state, self.cell.weight_hh)
        return hidden.clone(), state  # the caller may write into y

    def unroll(
        self, x: Float[Tensor, "T B D"], state: LSTMState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], LSTMState]:
        """Multiply all inputs at once, then run the kernel over all steps; see `Core.unroll`."""
        check_inputs(self, x, state, is_first)
        return lstm(self._from_input(x), is_first, state, self.cell.weight_hh)

    def inspect(self, x: Float[Tensor, "B D"], state: LSTMState) -> list[dict[str, Tensor]]:
        """Return the three gates and `candidate` [B, E], and the state after the step."""
        (after,) = super().inspect(x, state)
        names = ("input_gate", "forget_gate", "candidate", "output_gate")
        values = gates(self._from_input(x), state, self.cell.weight_hh)
        return [dict(zip(names, values, strict=True)) | after]

    def _from_input(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch gates"]:
        return F.linear(x, self.cell.weight_ih, self.cell.bias_ih + self.cell.bias_hh)


KIND = alone(LSTM, "LSTM", LSTMConfig())
