"""Base class of the fast-weight cores: heads, and a slow net that programs a recurrence.

A subclass declares the vectors that its slow net emits and the recurrence that consumes them.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.core import Core
from fastweights.kernels import State, feature_map, step_once
from fastweights.kernels.delta_rule import DeltaRuleState
from fastweights.kernels.split_map import Part, split_map

SCALAR = Part(())
STRENGTH_MAP = {1: "sigmoid", 2: "double_sigmoid"}  # by maximum write strength


def mapped(feature_map_name: str, *shape: int) -> Part:
    """Return a part of a slow net's output with a feature map applied.

    Raises:
        ValueError: an unknown feature map; the message lists the known ones.
    """
    feature_map(feature_map_name)
    return Part(shape, feature_map_name)


class SlowNet(nn.Module):
    """A linear map without bias from x to vectors and scalars per head, each with its own map."""

    def __init__(self, width: int, heads: int, parts: tuple[Part, ...]):
        super().__init__()
        self.parts = parts
        self.project = nn.Linear(width, heads * sum(p.length for p in parts), bias=False)
        self.heads = heads

    def forward(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        """Return a tensor [..., H, *shape] for each part."""
        return split_map(self.project(x).unflatten(-1, (self.heads, -1)), self.parts)


class FastWeightCore(Core):
    """Abstract: x [..., D] -> heads -> recurrence -> concatenated outputs of the heads [..., D].

    Args:
        width: D.
        heads: number of heads H; must divide the width.
        feature_map_name: map of keys and queries, a name in `kernels.feature_maps`.
        max_write_strength: 1 for write strengths in (0, 1), 2 for (0, 2).

    Raises:
        ValueError: the heads do not divide the width, or an unknown map or maximum strength.
    """

    operation: Callable[..., tuple[Tensor, Any]]  # the unrolled recurrence, a kernel
    reference_step: Callable[..., tuple[Tensor, Any]]  # its definition: one step in plain PyTorch
    slow_net: SlowNet  # for `program`
    delta_rule = True  # writes the difference to the stored value: see cores/unbounded.py
    vectors: tuple[str, ...]  # names that `inspect` gives to the tensors of `programmed`

    def __init__(self, width: int, heads: int, feature_map_name: str, max_write_strength: int = 1):
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"width {width} cannot be split into {heads} heads of equal size")
        self.input_size = self.output_size = width
        self.heads, self.head_size = heads, width // heads
        feature_map(feature_map_name)  # raises for an unknown name
        self.feature_map_name = feature_map_name
        if max_write_strength not in STRENGTH_MAP:
            raise ValueError(f"max_write_strength must be 1 or 2, not {max_write_strength}")
        self.strength_map = STRENGTH_MAP[max_write_strength]

    def initial_state(self, batch_size: int) -> State:
        """Return zero fast weights [B, H, D, D], D the head size; some memories have more."""
        return DeltaRuleState(self.zeros(batch_size, self.heads, self.head_size, self.head_size))

    def key(self, *shape: int) -> Part:
        """Return the part for a key or query, of `shape` or the head size; mapped."""
        return mapped(self.feature_map_name, *(shape or (self.head_size,)))

    def value(self, *shape: int) -> Part:
        """Return the part for a value, of `shape` or the head size; not mapped."""
        return Part(shape or (self.head_size,))

    def strength(self, *shape: int) -> Part:
        """Return the part for write strengths of `shape`, in (0, 1) or (0, 2)."""
        return Part(shape, self.strength_map)

    def program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        """Return the recurrence's inputs [..., H, ...]."""
        return self.slow_net(x)

    def programmed(self, x: Float[Tensor, "B D"], state: State) -> tuple[Tensor, ...]:
        """Return the vectors that one step reads and writes with, feature maps applied."""
        return self.program(x)

    def constants(self) -> dict[str, Any]:
        """Return the recurrence's other arguments, which are constant over time."""
        return {}

    def step(self, x: Float[Tensor, "B D"], state: State) -> tuple[Float[Tensor, "B D"], State]:
        """Compute one step by the recurrence's definition."""
        y, state = step_once(self.reference_step, self.program(x), state, **self.constants())
        return y.flatten(-2), state

    def unroll(
        self, x: Float[Tensor, "T B D"], state: State, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B D"], State]:
        """Run the recurrence's kernel over all steps; see `Core.unroll`."""
        y, state = self.operation(*self.program(x), is_first, state, **self.constants())
        return y.flatten(-2), state

    def inspect(self, x: Float[Tensor, "B D"], state: State) -> list[dict[str, Tensor]]:
        """Return the vectors of the step by name, and the state after it, as the only layer."""
        (after,) = super().inspect(x, state)
        return [dict(zip(self.vectors, self.programmed(x, state), strict=True)) | after]

    def zeros(self, *shape: int) -> Tensor:
        """Return a zero tensor of the parameters' dtype and device."""
        return next(self.parameters()).new_zeros(shape)
