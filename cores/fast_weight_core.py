"""What the fast-weight cores share: heads, and the slow net that programs a recurrence.

A variant says only what varies: the vectors its slow net emits, and which recurrence they drive.
"""

import abc
from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from cores.core import Core
from kernels.feature_maps import feature_map
from kernels.recurrence import State

SCALAR = None  # the size of what has no axis of its own, unlike a vector of one number


class SlowNet(nn.Module):
    """Projects x to several vectors and scalars per head, without bias.

    `sizes` names the length of each vector, or `SCALAR`. The results are views of one tensor
    [..., H, all numbers]: nothing is copied.
    """

    def __init__(self, width: int, heads: int, sizes: tuple[int | None, ...]):
        super().__init__()
        self.heads, self.sizes = heads, sizes
        self.lengths = [1 if size is SCALAR else size for size in sizes]
        self.project = nn.Linear(width, heads * sum(self.lengths), bias=False)

    def forward(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        programs = self.project(x).unflatten(-1, (self.heads, sum(self.lengths)))
        parts = zip(programs.split(self.lengths, -1), self.sizes, strict=True)
        return tuple(part.squeeze(-1) if size is SCALAR else part for part, size in parts)


class FastWeightCore(Core):
    """Abstract: x [.., D] -> heads -> recurrence -> heads side by side [.., D]."""

    operation: Callable[..., tuple[Tensor, Any]]  # the recurrence, unrolled
    law: Callable[..., tuple[Tensor, Any]]  # one step of it
    vectors: tuple[str, ...]  # what `programmed` returns, by the names that `inspect` gives

    def __init__(self, width: int, heads: int, feature_map_name: str):
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"width {width} cannot be split into {heads} heads of equal size")
        self.input_size = self.output_size = width
        self.heads, self.head_size = heads, width // heads
        self.feature_map_name = feature_map_name
        self.feature_map = feature_map(feature_map_name)

    @abc.abstractmethod
    def program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        """The recurrence's inputs, each [..., H, size] or [..., H]."""

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
