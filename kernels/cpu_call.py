"""Calls a C++ kernel on CPU tensors: allocates its results and hands over pointers and strides.

The C side (include/call.h) reads one array of 64-bit integers in order: the size of each axis
letter, the number of threads, the options, then for each tensor its rank, address and strides.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels import cpu_build
from kernels.signature import Axes, Signature, Sizes, shape

LANES = (8, 16, 32, 64)
SCALARS = {torch.float32: "float", torch.float64: "double"}
# Below this many multiply-adds, waking a second thread costs more than it saves.
WORK_FOR_THREADS = 200_000
_NULL: dict[int, tuple[int, ...]] = {rank: (rank, 0, *(0,) * rank) for rank in range(8)}


def allocate(like: Tensor, size: Sequence[int]) -> Tensor:
    """Memory that the kernel must fill completely; tests replace this to fill it with NaN."""
    return like.new_empty(size)


def _row_major(tensor: Tensor) -> Tensor:
    """The tensor itself, unless its rows are not contiguous."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def _describe(tensor: Tensor) -> tuple[int, ...]:
    strides = tensor.stride()
    return (len(strides), tensor.data_ptr(), *strides)


@dataclass(frozen=True)
class CpuKernel:
    """The pair of functions `forward` and `backward` of an operation on CPUs.

    `saved`: what the forward pass keeps for the backward pass, name -> axes.
    `head_axes`: the axes that must fit into the kernel's rows (at most 64); none for a kernel
    that takes any size. `options`: for each option its values in the order of the C++ enum.
    """

    signature: Signature
    source: Path
    saved: Mapping[str, str]
    head_axes: tuple[str, ...] = ("K", "V")
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def saved_axes(self) -> list[Axes]:
        return [tuple(axes.split()) for axes in self.saved.values()]

    @cached_property
    def _scattered(self) -> set[int]:
        """Positions of arguments read number by number: for these any stride will do."""
        last = [argument.axes[-1] for argument in self.signature.arguments]
        return {i for i, axis in enumerate(last) if not any(d in axis for d in "KVD")}

    def library(self, dtype: torch.dtype, sizes: Sizes) -> Any:
        """The compiled kernel for this dtype and head size; raises `BuildError`."""
        head = max((sizes[axis] for axis in self.head_axes), default=LANES[0])
        lanes = next(lanes for lanes in LANES if lanes >= head)
        return cpu_build.library(self.source, SCALARS[dtype], lanes)

    def why_not(self, device: torch.device, dtype: torch.dtype, sizes: Sizes) -> str | None:
        """Why this kernel cannot take such a call; None if it can (then it is built)."""
        if device.type != "cpu":
            return f"the tensors are on {device}"
        for axis in self.head_axes:
            if sizes[axis] > LANES[-1]:
                return f"head size {axis} = {sizes[axis]} is above {LANES[-1]}"
        try:
            self.library(dtype, sizes)
        except (cpu_build.BuildError, OSError) as error:
            return str(error)
        return None

    def forward(self, *call: Any, save: bool = True) -> tuple[Tensor, ...]:
        """y, the final state and, if asked for, what the backward pass needs."""
        tensors, options = self._split(call, len(self.signature.arguments))
        sizes = self.signature.check(tensors)
        results = [self.signature.output, *self.signature.state]
        outputs = [allocate(tensors[0], shape(result.axes, sizes)) for result in results]
        if save:
            outputs += [allocate(tensors[0], shape(axes, sizes)) for axes in self.saved_axes]
        absent = () if save else self.saved_axes
        self._run("forward", sizes, options, [*tensors, *outputs], absent)
        return tuple(outputs)

    def backward(self, *call: Any) -> tuple[Tensor, ...]:
        """The gradient of every input, weight and initial state, in the order of the arguments."""
        count = len(self.signature.arguments)
        total = count + len(self.saved) + 1 + len(self.signature.state)
        tensors, options = self._split(call, total)
        sizes = self.signature.check(tensors[:count])
        arguments = [self.signature.arguments[i] for i in self.signature.differentiable]
        grads = [allocate(tensors[0], shape(argument.axes, sizes)) for argument in arguments]
        self._run("backward", sizes, options, [*tensors, *grads])
        return tuple(grads)

    def _split(self, call: Sequence[Any], count: int) -> tuple[list[Tensor], Sequence[Any]]:
        tensors = [t if i in self._scattered else _row_major(t) for i, t in enumerate(call[:count])]
        return tensors, call[count:]

    def _run(
        self,
        function: str,
        sizes: Sizes,
        options: Sequence[Any],
        tensors: Sequence[Tensor],
        absent: Sequence[Axes] = (),
    ) -> None:
        values = [*sizes.values(), _threads(sizes), *self._encode(options)]
        for tensor in tensors:
            values += _describe(tensor)
        for axes in absent:
            values += _NULL[len(axes)]
        packed = struct.pack(f"{len(values)}q", *values)
        run: Callable[[bytes], None] = getattr(self.library(tensors[0].dtype, sizes), function)
        run(packed)

    def _encode(self, options: Sequence[Any]) -> list[int]:
        pairs = zip(self.options.items(), options, strict=True)
        return [choices.index(value) for (_, choices), value in pairs]


def _threads(sizes: Sizes) -> int:
    steps = math.prod(size for axis, size in sizes.items() if axis in "TBH")
    work = steps * max(sizes.get(axis, 0) for axis in "KVD") ** 2
    return torch.get_num_threads() if work >= WORK_FOR_THREADS else 1
