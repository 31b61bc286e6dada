"""A short convolution over time: adds weighted recent inputs of each unit to its current input."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.causal_window import window, windows
from fastweights.cores.core import Core


class ShortConvolutionState(NamedTuple):
    """The M = taps - 1 last inputs, the newest last; zero before the episode's start."""

    inputs: Float[Tensor, "B M D"]


class ShortConvolution(Core):
    """A causal depthwise convolution beside a skip connection, without bias or nonlinearity.

    Initial weights are uniform in ±1/sqrt(taps), as in PyTorch's depthwise convolutions.

    Args:
        width: D, the number of units.
        taps: number of time steps, including the current one.
    """

    equation = "y_t = x_t + sum_(j < taps) w_j * x_(t-j)"
    source = "Allen-Zhu 2025 (Canon layer)"

    def __init__(self, width: int, taps: int):
        super().__init__()
        self.input_size = self.output_size = width
        self.weight = nn.Parameter(torch.empty(taps, width))  # the oldest input's first
        nn.init.uniform_(self.weight, -(taps**-0.5), taps**-0.5)

    def initial_state(self, batch_size: int) -> ShortConvolutionState:
        """Return zeros [B, M, D]."""
        taps, width = self.weight.shape
        return ShortConvolutionState(self.weight.new_zeros(batch_size, taps - 1, width))

    def step(
        self, x: Float[Tensor, "B D"], state: ShortConvolutionState
    ) -> tuple[Float[Tensor, "B D"], ShortConvolutionState]:
        """Convolve the window that ends with x; return the output and the next window."""
        rows, inputs = window(x, state.inputs)
        return x + self._convolved(rows), ShortConvolutionState(inputs)

    def unroll(
        self, x: Float[Tensor, "T B D"], state: ShortConvolutionState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B D"], ShortConvolutionState]:
        """Convolve all windows at once; a window does not reach beyond its episode."""
        rows, inputs = windows(x, state.inputs, is_first)
        return x + self._convolved(rows), ShortConvolutionState(inputs)

    def _convolved(self, rows: Float[Tensor, "*batch N"]) -> Float[Tensor, "*batch D"]:
        return (rows.unflatten(-1, self.weight.shape) * self.weight).sum(-2)
