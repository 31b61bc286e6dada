"""A chain of cores: each reads the output of the core before it."""

from collections.abc import Callable, Iterable, Sequence

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.kernels import State


class Chain(Core):
    """Abstract: a core of several layers. Its state is a tuple of the layers' states."""

    def __init__(self, layers: Sequence[Core]):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.input_size, self.output_size = layers[0].input_size, layers[-1].output_size

    def initial_state(self, batch_size: int) -> tuple:
        """Return a tuple of each layer's fresh state."""
        return tuple(layer.initial_state(batch_size) for layer in self.layers)

    def step(self, x: Float[Tensor, "B D"], state: tuple) -> tuple[Float[Tensor, "B E"], tuple]:
        """Apply one step of every layer in order."""
        check_step(self, x, state)
        return through(self.layers, x, state, lambda layer, y, before: layer.step(y, before))

    def unroll(
        self, x: Float[Tensor, "T B D"], state: tuple, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], tuple]:
        """Unroll one layer after the other over the whole sequence."""
        check_inputs(self, x, state, is_first)
        return through(
            self.layers, x, state, lambda layer, y, before: layer.unroll(y, before, is_first)
        )

    def inspect(self, x: Float[Tensor, "B D"], state: tuple) -> list[dict[str, Tensor]]:
        """Return the dicts of all layers, in order."""
        check_step(self, x, state)
        return inspected(self.layers, x, state)


def through(
    layers: Iterable[Core],
    y: Tensor,
    state: tuple,
    apply: Callable[..., tuple[Tensor, State]],
) -> tuple[Tensor, tuple]:
    """Apply every layer to the output of the one before it.

    Args:
        y: the first layer's input.
        state: a state of each layer.
        apply: takes a layer, its input and its state; returns its output and next state.

    Returns:
        The last layer's output, and a tuple of the next states.
    """
    after = []
    for layer, before in zip(layers, state, strict=True):
        y, layer_state = apply(layer, y, before)
        after.append(layer_state)
    return y, tuple(after)


def inspected(
    layers: Iterable[Core], x: Float[Tensor, "B D"], state: tuple
) -> list[dict[str, Tensor]]:
    """Return the dicts of `Core.inspect` of all layers in a chain, in order."""
    seen = []

    def look(layer: Core, y: Tensor, before: State) -> tuple[Tensor, State]:
        seen.extend(layer.inspect(y, before))
        return layer.step(y, before)

    through(layers, x, state, look)
    return seen
