"""e-LSTM: an LSTM with element-wise recurrence and a single gate for forgetting and writing."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.cores.kind import alone
from fastweights.kernels.elementwise_lstm import (
    ElementwiseState,
    ElementwiseWeights,
    elementwise_lstm,
    gates,
    step,
)


@dataclass(frozen=True, kw_only=True)
class ELSTMConfig:
    """Sizes of the element-wise LSTM."""

    width: int = 256
    """Number of units."""


class ELSTM(Core):
    """One layer with the paper's equations and the biases of its code.

    The output gate reads all cells, so its matrix product runs once over the whole unroll, after
    the cells are computed. Recurrent weights are initialised uniformly within 1 / sqrt(width), as
    in PyTorch's LSTM.
    """

    equation = (
        "c_t = f_t * c_(t-1) + (1 - f_t) * z_t;  y_t = o_t * c_t;  f_t, z_t read c_(t-1), too"
    )
    source = "Irie et al. 2023, eqs. 17-21"

    def __init__(self, input_size: int, config: ELSTMConfig | None = None):
        super().__init__()
        config = config or ELSTMConfig()
        width, bound = config.width, config.width**-0.5
        self.input_size, self.output_size = input_size, width
        self.from_input = nn.Linear(input_size, 2 * width)  # candidate, forget gate
        self.candidate_weights = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
        self.forget_weights = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
        self.output_gate = nn.Linear(input_size + width, width)

    def initial_state(self, batch_size: int) -> ElementwiseState:
        """Return zero cells [B, E]."""
        return ElementwiseState(self.forget_weights.new_zeros(batch_size, self.output_size))

    def step(
        self, x: Float[Tensor, "B D"], state: ElementwiseState
    ) -> tuple[Float[Tensor, "B E"], ElementwiseState]:
        """Update the cells and gate them: y [B, E] and the next state."""
        check_step(self, x, state)
        cell, state = step(*self._program(x), state, self._weights())
        return self._gated(x, cell), state

    def unroll(
        self, x: Float[Tensor, "T B D"], state: ElementwiseState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], ElementwiseState]:
        """Update the cells over all steps in a kernel, then gate all of them at once."""
        check_inputs(self, x, state, is_first)
        cells, state = elementwise_lstm(*self._program(x), is_first, state, self._weights())
        return self._gated(x, cells), state

    def inspect(self, x: Float[Tensor, "B D"], state: ElementwiseState) -> list[dict[str, Tensor]]:
        """Return `candidate`, `forget_gate`, `output_gate` [B, E], and the new cells."""
        (after,) = super().inspect(x, state)
        candidate, _, forget = gates(*self._program(x), state, self._weights())
        output = self._output_gate(x, after["cell"])
        return [{"candidate": candidate, "forget_gate": forget, "output_gate": output} | after]

    def _program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, Tensor, Tensor]:
        candidate, forget = self.from_input(x).chunk(2, -1)
        return candidate, -forget, forget  # the input gate is 1 - sigmoid(forget)

    def _weights(self) -> ElementwiseWeights:
        return ElementwiseWeights(self.candidate_weights, -self.forget_weights, self.forget_weights)

    def _gated(self, x: Tensor, cell: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch E"]:
        return self._output_gate(x, cell) * cell

    def _output_gate(self, x: Tensor, cell: Tensor) -> Float[Tensor, "*batch E"]:
        return self.output_gate(torch.cat([x, cell], -1)).sigmoid()


KIND = alone(ELSTM, "LSTM, element-wise", ELSTMConfig())
