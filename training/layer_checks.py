"""Passes through a network of pictures that can be given up between two of its layers.

All pictures of a batch at once (`--micro-batch 0`, `--preset plain`) take many seconds on an old
CPU, and so do those of very many streams. The longest layer takes about a tenth of that.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from fastweights.agents import ImageStem, Network


@contextmanager
def checked_layers(network: Network, check: Callable[[], None]) -> Iterator[None]:
    """In the block, `check` is called after each layer, and before each in the backward pass.

    What it raises ends the pass; numbers are the same bits with it as without. Nothing is called
    for stems of vectors, whose passes are short, on a GPU, where a call would only see a launch,
    and in copies of the network that were made before the block.
    """

    def after(layer: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        check()
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda gradient: check())

    with ExitStack() as hooks:
        if isinstance(network.stem, ImageStem) and network.stem.project.weight.is_cpu:
            for layer in network.modules():  # those that hold others too: some run as a whole
                hooks.enter_context(layer.register_forward_hook(after))
        yield
