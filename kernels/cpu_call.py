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


def allocate(like: Tensor, size: Sequence[int]) -> Tensor:
    """Memory that the kernel must fill completely; tests replace this to fill it with NaN."""
    return like.new_empty(size)


@dataclass(frozen=True)
class Plan:
    """What is the same in every call of one function with the same sizes and options."""

    function: Callable[[bytes], None]
    sizes: tuple[int, ...]
    options: tuple[int, ...]
    outputs: list[list[int]]
    absent: tuple[int, ...]  # null tensors: outputs that nobody asked for
    worth_threads: bool
    scattered: frozenset[int]  # positions of tensors read number by number: any stride will do

    def run(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        like = tensors[0]
        outputs = [allocate(like, size) for size in self.outputs]
        threads = torch.get_num_threads() if self.worth_threads else 1
        values = [*self.sizes, threads, *self.options]
        copies = []  # held until the kernel has run
        for position, tensor in enumerate((*tensors, *outputs)):
            strides = tensor.stride()
            if strides[-1] != 1 and position not in self.scattered and tensor.shape[-1] > 1:
                tensor = tensor.contiguous()
                copies.append(tensor)
                strides = tensor.stride()
            values += (len(strides), tensor.data_ptr(), *strides)
        values += self.absent
        self.function(struct.pack(f"{len(values)}q", *values))
        return tuple(outputs)


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

    def forward(self, *call: Any) -> tuple[Tensor, ...]:
        """y, the final state and what the backward pass needs."""
        count = len(self.signature.arguments)
        sizes = self.signature.check(call[:count])
        return self._plan("forward", call[0].dtype, sizes, call[count:]).run(call[:count])

    def infer(
        self, tensors: Sequence[Tensor], options: Sequence[Any], sizes: Sizes
    ) -> tuple[Tensor, ...]:
        """y and the final state only."""
        key = "infer", tensors[0].dtype, *options
        plan = sizes.plans.get(key)
        if plan is None:
            plan = sizes.plans[key] = self._plan(*key[:2], sizes, options)
        return plan.run(tensors)

    def backward(self, *call: Any) -> tuple[Tensor, ...]:
        """The gradient of every input, weight and initial state, in the order of the arguments."""
        arguments = len(self.signature.arguments)
        count = arguments + len(self.saved) + 1 + len(self.signature.state)
        sizes = self.signature.check(call[:arguments])
        return self._plan("backward", call[0].dtype, sizes, call[count:]).run(call[:count])

    def _plan(
        self, function: str, dtype: torch.dtype, sizes: Sizes, options: Sequence[Any]
    ) -> Plan:
        results = [self.signature.output.axes, *(a.axes for a in self.signature.state)]
        if function == "forward":
            results += self.saved_axes
        if function == "backward":
            results = [self.signature.arguments[i].axes for i in self.signature.differentiable]
        absent = self.saved_axes if function == "infer" else []
        library = self.library(dtype, sizes)
        steps = math.prod(size for axis, size in sizes.items() if axis in "TBH")
        head = max(size for axis, size in sizes.items() if axis in "KVD")
        return Plan(
            library.backward if function == "backward" else library.forward,
            tuple(sizes.values()),
            self._encode(options),
            [shape(axes, sizes) for axes in results],
            sum(((len(axes), 0, *(0,) * len(axes)) for axes in absent), ()),
            steps * head**2 >= WORK_FOR_THREADS,
            self._scattered,
        )

    @cached_property
    def _scattered(self) -> frozenset[int]:
        """All others have rows along their last axis, which must be contiguous."""
        last = [argument.axes[-1] for argument in self.signature.arguments]
        return frozenset(i for i, axis in enumerate(last) if not set(axis) & set("KVD"))

    def _encode(self, options: Sequence[Any]) -> tuple[int, ...]:
        """Each option as its place in the C++ enum; an unknown one is the caller's error."""
        for (name, choices), value in zip(self.options.items(), options, strict=True):
            if value not in choices:
                known = ", ".join(choices)
                raise ValueError(f"{self.signature.name}: {name} is {value!r}, known: {known}")
        pairs = zip(self.options.values(), options, strict=True)
        return tuple(choices.index(value) for choices, value in pairs)
