"""Elman's simple recurrent network, without gates."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.cores.kind import alone
from fastweights.kernels import step_once
from fastweights.kernels.elman import ElmanState, ElmanWeights, elman, step


@dataclass(frozen=True, kw_only=True)
class ElmanConfig:
    """Size of the Elman network."""

    width: int = 256
    """Number of units."""


class Elman(Core):
    """One layer with PyTorch's parameters and initialisation."""

    equation = "y_t = h_t = tanh(W x_t + U h_(t-1) + b)"
    source = "Elman 1990"

    def __init__(self, input_size: int, config: ElmanConfig | None = None):
        super().__init__()
        config = config or ElmanConfig()
        self.input_size, self.output_size = input_size, config.width
        self.cell = nn.RNNCell(input_size, config.width)

    def initial_state(self, batch_size: int) -> ElmanState:
        """Return zero hidden units [B, E]."""
        return ElmanState(self.cell.weight_hh.new_zeros(batch_size, self.output_size))

    def step(
        self, x: Float[Tensor, "B D"], state: ElmanState
    ) -> tuple[Float[Tensor, "B E"], ElmanState]:
        """Compute one step of the equation: y [B, E] and the next state."""
        check_step(self, x, state)
        hidden, state = step_once(step, (x,), state, self._weights())
        return hidden.clone(), state  # the caller may write into y

    def unroll(
        self, x: Float[Tensor, "T B D"], state: ElmanState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], ElmanState]:
        """Run the kernel over all steps; see `Core.unroll`."""
        check_inputs(self, x, state, is_first)
        return elman(x, is_first, state, self._weights())

    def _weights(self) -> ElmanWeights:
        cell = self.cell
        return ElmanWeights(cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)


KIND = alone(Elman, "Elman network", ElmanConfig())
