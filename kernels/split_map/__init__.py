"""Splits a slow net's output into parts and applies a map to each, in one pass.

PyTorch's operators need ten passes over memory forward and ten backward. The C++ kernel reads every
number once forward and once backward, and saves only its input.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fastweights.host import unknown_name
from fastweights.kernels.feature_maps import FEATURE_MAPS, STRENGTH_MAPS
from fastweights.kernels.machinery import cpu_build, direct_call
from fastweights.kernels.machinery.direct_call import ANY_SIZE
from fastweights.kernels.machinery.library import wants_gradient
from fastweights.kernels.machinery.signature import is_traced, is_watched

MAPS: dict[str, Callable[[Tensor], Tensor]] = FEATURE_MAPS | STRENGTH_MAPS
UNMAPPED = "identity"
SOURCE = "split_map/cpu.cpp"
_HALF = (torch.bfloat16, torch.float16)
_ELEMENTWISE = {"elu", "identity", *STRENGTH_MAPS}
_CODES = {name: code for code, name in enumerate(MAPS)}  # values of the C++ enum

Row = Float[Tensor, "*batch N"]


@dataclass(frozen=True)
class Part:
    """A contiguous part of a row whose numbers serve one purpose.

    Args:
        shape: the part's shape; () for a single number.
        map: one of `MAPS`, applied along the last axis.

    Raises:
        ValueError: an unknown map.
    """

    shape: tuple[int, ...]
    map: str = UNMAPPED

    def __post_init__(self) -> None:
        if self.map not in MAPS:
            raise ValueError(unknown_name("map", self.map, MAPS))

    @property
    def length(self) -> int:
        """How many numbers the part has."""
        return math.prod(self.shape)


def split_map(x: Row, parts: tuple[Part, ...]) -> tuple[Float[Tensor, "..."], ...]:
    """Return one tensor [*batch, *part.shape] for each part, in the order of x.

    Accepts any floating dtype on any device, and can be differentiated any number of times. Without
    maps the results are views. The kernel runs for float32 and float64 on CPUs; half precision is
    computed in float32 and rounded. PyTorch's operators run while tracing, on other devices and
    without a compiler. For -inf, the kernel's `silu_unit` is NaN in that entry, PyTorch's in all.

    Raises:
        ValueError: the parts' lengths do not add up to x's last axis.
    """
    if x.shape[-1] != sum(part.length for part in parts):
        raise ValueError(f"rows of {x.shape[-1]} numbers do not split into {parts}")
    if not has_kernel(x, parts):
        return _by_pytorch(x, parts)
    if x.dtype in _HALF:
        return tuple(found.to(x.dtype) for found in split_map(x.float(), parts))
    return _Recorded.apply(x, parts) if wants_gradient((x,)) else _forward(x, parts)


def has_kernel(x: Tensor, parts: Sequence[Part]) -> bool:
    """Return whether `split_map` runs its own kernel on such a tensor; build it if necessary."""
    if all(part.map == UNMAPPED for part in parts) or is_traced() or not x.is_cpu:
        return False
    dtype = torch.float32 if x.dtype in _HALF else x.dtype
    if dtype not in (torch.float32, torch.float64) or x.is_neg() or x.numel() == 0:
        return False
    return direct_call.is_there(SOURCE, dtype, ANY_SIZE)


def _by_pytorch(x: Row, parts: Sequence[Part]) -> tuple[Tensor, ...]:
    found = x.split([part.length for part in parts], -1)
    return tuple(_mapped(numbers, part) for numbers, part in zip(found, parts, strict=True))


def _mapped(numbers: Float[Tensor, "*batch M"], part: Part) -> Tensor:
    if len(part.shape) > 1:
        numbers = numbers.unflatten(-1, part.shape)
    y = MAPS[part.map](numbers)
    return y if part.shape else y.squeeze(-1)


def _library(x: Tensor) -> cpu_build.Library:
    return direct_call.library(SOURCE, x.dtype, ANY_SIZE)


def _layout(x: Row, parts: Sequence[Part]) -> list[int]:
    """Return the numbers of rows and parts, and each part's vector count, vector length and map.

    Numbers that are mapped elementwise count as a single vector.
    """
    layout = [x.shape[:-1].numel(), len(parts)]
    for part in parts:
        vectors, size = math.prod(part.shape[:-1]), math.prod(part.shape[-1:])
        if part.map in _ELEMENTWISE:
            vectors, size = 1, part.length
        layout += vectors, size, _CODES[part.map]
    return layout


def _forward(x: Row, parts: Sequence[Part]) -> tuple[Tensor, ...]:
    found = tuple(x.new_empty((*x.shape[:-1], *part.shape)) for part in parts)
    direct_call.call(_library(x).forward, _layout(x, parts), (x.contiguous(), *found))
    return found


def _backward(x: Row, parts: Sequence[Part], grads: Sequence[Tensor | None]) -> Row:
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    dense = [None if grad is None else grad.resolve_neg().contiguous() for grad in grads]
    direct_call.call(_library(x).backward, _layout(x, parts), (x.contiguous(), grad_x, *dense))
    return grad_x


def _differentiable_backward(x: Row, parts: Sequence[Part], grads: Sequence[Tensor | None]) -> Row:
    """Compute the gradient with PyTorch's operators, which can be differentiated again."""
    with torch.enable_grad():
        pairs = zip(_by_pytorch(x, parts), grads, strict=True)
        found, given = zip(*(pair for pair in pairs if pair[1] is not None), strict=True)
        return torch.autograd.grad(found, x, given, create_graph=True)[0]


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Row, parts: Sequence[Part]) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x)
        ctx.parts = parts
        ctx.set_materialize_grads(False)
        return _forward(x, parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None]:
        if all(grad is None for grad in grads):
            return None, None
        back = _differentiable_backward if is_watched(grads) else _backward
        return back(*ctx.saved_tensors, ctx.parts, grads), None


__all__ = ["MAPS", "Part", "has_kernel", "split_map"]
