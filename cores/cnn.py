"""Causal convolutional network: remembers only the last inputs."""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.causal_window import window, windows
from fastweights.cores.chain import Chain
from fastweights.cores.core import Core
from fastweights.cores.kind import alone


@dataclass(frozen=True, kw_only=True)
class CNNConfig:
    """Sizes and window of the causal CNN."""

    layers: int = 1
    """Number of layers."""
    width: int = 256
    """Number of units; in a CNN, per layer."""
    window: int = 8
    """Number of time steps in the window, including the current one."""


class CNNState(NamedTuple):
    """The M = window - 1 last inputs, the newest last; zero before the episode's start."""

    inputs: Float[Tensor, "B M D"]


class CNNLayer(Core):
    """One layer: a convolution over the window that ends with the current row, and a ReLU."""

    equation = "y_t = relu(W (x_(t-k+1), .., x_t))"
    source = "Waibel et al. 1989"

    def __init__(self, input_size: int, config: CNNConfig):
        super().__init__()
        self.input_size, self.output_size = input_size, config.width
        self.before = config.window - 1
        self.convolution = nn.Linear(config.window * input_size, config.width)

    def initial_state(self, batch_size: int) -> CNNState:
        """Return a window of zeros [B, M, D]."""
        zeros = self.convolution.weight.new_zeros
        return CNNState(zeros(batch_size, self.before, self.input_size))

    def step(
        self, x: Float[Tensor, "B D"], state: CNNState
    ) -> tuple[Float[Tensor, "B E"], CNNState]:
        """Multiply the window that ends with x [B, D]; return y [B, E] and the next window."""
        rows, inputs = window(x, state.inputs)
        return self.convolution(rows).relu(), CNNState(inputs)

    def unroll(
        self, x: Float[Tensor, "T B D"], state: CNNState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], CNNState]:
        """Multiply all windows at once; a window does not reach beyond its episode."""
        rows, inputs = windows(x, state.inputs, is_first)
        return self.convolution(rows).relu(), CNNState(inputs)

    def inspect(self, x: Float[Tensor, "B D"], state: CNNState) -> list[dict[str, Tensor]]:
        """Return the layer's outputs `units` [B, E], and the window after the step."""
        units, after = self.step(x, state)
        return [{"units": units} | after._asdict()]


class CNN(Chain):
    """A chain of layers; L layers with windows of k reach back L (k - 1) inputs."""

    equation, source = CNNLayer.equation, CNNLayer.source

    def __init__(self, input_size: int, config: CNNConfig | None = None):
        config = config or CNNConfig()
        sizes = [input_size, *[config.width] * (config.layers - 1)]
        super().__init__([CNNLayer(size, config) for size in sizes])


KIND = alone(CNN, "Causal CNN", CNNConfig())
