"""Passes through a vision network that can be interrupted between two layers.

A pass over a whole batch (`--micro-batch 0`, `--preset plain`), or over very many streams, takes
many seconds on an old CPU. The slowest layer takes about a tenth of this time.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from fastweights.agents import ImageStem, Network


@contextmanager
def checked_layers(network: Network, check: Callable[[], None]) -> Iterator[None]:
    """Call `check` after each layer in the block, and before each layer in the backward pass.

    An exception from `check` ends the pass; results are bit-identical with and without it. `check`
    is not called for stems of vectors, whose passes are short, nor on a GPU, where a call would see
    only the launch, nor in copies of the network made before the block.
    """

    def after(layer: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        check()
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda gradient: check())

    with ExitStack() as hooks:
        if isinstance(network.stem, ImageStem) and network.stem.project.weight.is_cpu:
            for layer in network.modules():  # also containers: some run as a whole
                hooks.enter_context(layer.register_forward_hook(after))
        yield
