"""The gated recurrent unit."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.cores.kind import alone
from fastweights.kernels import step_once
from fastweights.kernels.gru import GRUState, GRUWeights, gates, gru, step


@dataclass(frozen=True, kw_only=True)
class GRUConfig:
    """Size of the GRU."""

    width: int = 256
    """Number of units."""


class GRU(Core):
    """One GRU layer with PyTorch's parameters and initialisation."""

    equation = "h_t = (1 - u_t) * n_t + u_t * h_(t-1);  n_t = tanh(W x_t + r_t * U h_(t-1));  y = h"
    source = "Cho et al. 2014"

    def __init__(self, input_size: int, config: GRUConfig | None = None):
        super().__init__()
        config = config or GRUConfig()
        self.input_size, self.output_size = input_size, config.width
        self.cell = nn.GRUCell(input_size, config.width)

    def initial_state(self, batch_size: int) -> GRUState:
        """Return zero hidden units [B, E]."""
        return GRUState(self.cell.weight_hh.new_zeros(batch_size, self.output_size))

    def step(
        self, x: Float[Tensor, "B D"], state: GRUState
    ) -> tuple[Float[Tensor, "B E"], GRUState]:
        """Compute one step of the equation: y [B, E] and the next state."""
        check_step(self, x, state)
        hidden, state = step_once(step, (x,), state, self._weights())
        return hidden.clone(), state  # the caller may write into y

    def unroll(
        self, x: Float[Tensor, "T B D"], state: GRUState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], GRUState]:
        """Run the kernel over all steps; see `Core.unroll`."""
        check_inputs(self, x, state, is_first)
        return gru(x, is_first, state, self._weights())

    def inspect(self, x: Float[Tensor, "B D"], state: GRUState) -> list[dict[str, Tensor]]:
        """Return `reset_gate`, `update_gate`, `candidate` [B, E], and the new state."""
        (after,) = super().inspect(x, state)
        names = ("reset_gate", "update_gate", "candidate")
        values = gates(x, state, self._weights())
        return [dict(zip(names, values, strict=True)) | after]

    def _weights(self) -> GRUWeights:
        cell = self.cell
        return GRUWeights(cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)


KIND = alone(GRU, "GRU", GRUConfig())
