"""Quasi-recurrent network (QRNN): causal convolutions, and an element-wise recurrent pooling."""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.causal_window import window, windows
from fastweights.cores.chain import Chain
from fastweights.cores.core import Core
from fastweights.cores.kind import alone
from fastweights.host import one_of
from fastweights.kernels.elementwise_lstm import (
    ElementwiseState,
    ElementwiseWeights,
    elementwise_lstm,
    gates,
    step,
)

POOLING = ("fo", "ifo")


@dataclass(frozen=True, kw_only=True)
class QRNNConfig:
    """Sizes, window and pooling of the quasi-RNN."""

    layers: int = 1
    """Number of layers."""
    width: int = 256
    """Number of units; in a QRNN, per layer."""
    window: int = 2
    """Number of time steps from which the gates are computed, including the current one."""
    pooling: str = "fo"
    """Gates of the pooling: fo (input gate 1 - forget gate), or ifo (a separate input gate)."""


class QRNNState(NamedTuple):
    """The last window - 1 inputs, newest last, zero before the episode's start; and the cells."""

    inputs: Float[Tensor, "B M D"]
    cell: Float[Tensor, "B E"]


class QRNNLayer(Core):
    """One layer; its matrix products run over the whole unroll, its pooling in a kernel."""

    equation = "c_t = f_t * c_(t-1) + i_t * z_t;  y_t = o_t * c_t;  z, f, o, i from x_(t-k+1..t)"
    source = "Bradbury et al. 2017, eqs. 1-5"

    def __init__(self, input_size: int, config: QRNNConfig):
        super().__init__()
        self.input_size, self.output_size = input_size, config.width
        self.before = config.window - 1
        parts = 3 if one_of("pooling", config.pooling, POOLING) == "fo" else 4
        self.convolution = nn.Linear(config.window * input_size, parts * config.width)

    def initial_state(self, batch_size: int) -> QRNNState:
        """Return zero inputs [B, window - 1, D] and zero cells [B, E]."""
        zeros = self.convolution.weight.new_zeros
        inputs = zeros(batch_size, self.before, self.input_size)
        return QRNNState(inputs, zeros(batch_size, self.output_size))

    def step(
        self, x: Float[Tensor, "B D"], state: QRNNState
    ) -> tuple[Float[Tensor, "B E"], QRNNState]:
        """Compute the gates from the window that ends with x [B, D], and pool once."""
        rows, inputs = window(x, state.inputs)
        *program, output = self._program(rows)
        cell, pooled = step(*program, ElementwiseState(state.cell), self._weights())
        return output * cell, QRNNState(inputs, pooled.cell)

    def unroll(
        self, x: Float[Tensor, "T B D"], state: QRNNState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], QRNNState]:
        """Compute the gates of all rows at once, then pool over all steps in a kernel."""
        rows, inputs = windows(x, state.inputs, is_first)
        *program, output = self._program(rows)
        before = ElementwiseState(state.cell)
        cells, pooled = elementwise_lstm(*program, is_first, before, self._weights())
        return output * cells, QRNNState(inputs, pooled.cell)

    def inspect(self, x: Float[Tensor, "B D"], state: QRNNState) -> list[dict[str, Tensor]]:
        """Return `candidate` and the three gates [B, E], and the state after the step."""
        (after,) = super().inspect(x, state)
        *program, output = self._program(window(x, state.inputs)[0])
        values = *gates(*program, ElementwiseState(state.cell), self._weights()), output
        names = ("candidate", "input_gate", "forget_gate", "output_gate")
        return [dict(zip(names, values, strict=True)) | after]

    def _program(self, rows: Float[Tensor, "*batch N"]) -> tuple[Tensor, ...]:
        """Return inputs of candidate, input gate and forget gate, and the output gate."""
        candidate, forget, output, *free = self.convolution(rows).split(self.output_size, -1)
        return candidate, free[0] if free else -forget, forget, output.sigmoid()

    def _weights(self) -> ElementwiseWeights:
        none = self.convolution.weight.new_zeros(self.output_size)
        return ElementwiseWeights(none, none, none)


class QRNN(Chain):
    """A chain of layers; each reads windows of the layer below."""

    equation, source = QRNNLayer.equation, QRNNLayer.source

    def __init__(self, input_size: int, config: QRNNConfig | None = None):
        config = config or QRNNConfig()
        sizes = [input_size, *[config.width] * (config.layers - 1)]
        super().__init__([QRNNLayer(size, config) for size in sizes])


KIND = alone(QRNN, "Quasi-RNN", QRNNConfig())
