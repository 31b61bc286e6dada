"""What the fast-weight cores share: heads, and the slow net that programs a recurrence.

A variant says only what varies: the vectors its slow net emits, and which recurrence they drive.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.core import Core
from fastweights.kernels.feature_maps import feature_map
from fastweights.kernels.recurrence import State
from fastweights.kernels.split_map import Part, split_map

SCALAR = Part(())
STRENGTH_MAP = {1: "sigmoid", 2: "double_sigmoid"}  # by the largest strength of a write


def mapped(feature_map_name: str, *shape: int) -> Part:
    """A part of a slow net's output that goes through that feature map.

    An unknown one raises a `ValueError` that lists the known ones.
    """
    feature_map(feature_map_name)
    return Part(shape, feature_map_name)


class SlowNet(nn.Module):
    """Projects x to several vectors and scalars per head, without bias, each through its map."""

    def __init__(self, width: int, heads: int, parts: tuple[Part, ...]):
        super().__init__()
        self.parts = parts
        self.project = nn.Linear(width, heads * sum(p.length for p in parts), bias=False)
        self.heads = heads

    def forward(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        """Of each part [..., H, *its shape]."""
        return split_map(self.project(x).unflatten(-1, (self.heads, -1)), self.parts)


class FastWeightCore(Core):
    """Abstract: x [.., D] -> heads -> recurrence -> heads side by side [.., D]."""

    operation: Callable[..., tuple[Tensor, Any]]  # the recurrence, unrolled
    law: Callable[..., tuple[Tensor, Any]]  # one step of it
    slow_net: SlowNet  # for `program`
    delta_rule = True  # writes what is missing, not all of a value: see cores/unbounded.py
    vectors: tuple[str, ...]  # what `programmed` returns, by the names that `inspect` gives

    def __init__(self, width: int, heads: int, feature_map_name: str, max_write_strength: int = 1):
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"width {width} cannot be split into {heads} heads of equal size")
        self.input_size = self.output_size = width
        self.heads, self.head_size = heads, width // heads
        feature_map(feature_map_name)  # refuses what is none
        self.feature_map_name = feature_map_name
        if max_write_strength not in STRENGTH_MAP:
            raise ValueError(f"max_write_strength must be 1 or 2, not {max_write_strength}")
        self.strength_map = STRENGTH_MAP[max_write_strength]

    def key(self, *shape: int) -> Part:
        """A key or a query: of the head's size, or of `shape`; for the feature map."""
        return mapped(self.feature_map_name, *(shape or (self.head_size,)))

    def value(self, *shape: int) -> Part:
        """As `key`, left as it is."""
        return Part(shape or (self.head_size,))

    def strength(self, *shape: int) -> Part:
        """A write strength, or `shape` of them: in (0, 1), or (0, 2) where that is the largest."""
        return Part(shape, self.strength_map)

    def program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        """The recurrence's inputs [..., H, ...]."""
        return self.slow_net(x)

    def programmed(self, x: Float[Tensor, "B D"], state: State) -> tuple[Tensor, ...]:
        """What the recurrence reads and writes with at this step, feature maps applied."""
        return self.program(x)

    def constants(self) -> dict[str, Any]:
        """The recurrence's other arguments, the same at every step."""
        return {}

    def step(self, x: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        y, state = self.law(*self.program(x), state, **self.constants())
        return y.flatten(-2), state

    def unroll(
        self, x: Float[Tensor, "T B D"], state: State, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B D"], State]:
        y, state = self.operation(*self.program(x), is_first, state, **self.constants())
        return y.flatten(-2), state

    def inspect(self, x: Float[Tensor, "B D"], state: State) -> list[dict[str, Tensor]]:
        (after,) = super().inspect(x, state)
        return [dict(zip(self.vectors, self.programmed(x, state), strict=True)) | after]

    def zeros(self, *shape: int) -> Tensor:
        """A zero tensor of the parameters' dtype and device."""
        return next(self.parameters()).new_zeros(shape)
