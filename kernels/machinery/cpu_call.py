"""Calls a C++ kernel on CPU tensors: allocates results and passes pointers and strides.

The C++ side (include/call.h) reads two arrays. The first, the layout, is the same for calls of the
same kind: the size of each axis letter, the number of threads, the options, and each tensor's rank
and strides. The second holds the tensors' addresses.
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

from fastweights.kernels.machinery import cpu_build
from fastweights.kernels.machinery.request import Request
from fastweights.kernels.machinery.signature import REMEMBERED_SHAPES, Axes, Signature, Sizes, shape

LANES = (8, 16, 32, 64, 128)
WIDEST_SQUARE = 64  # above it, operations with several matrices per head overflow the L1 cache
NARROWEST_OBLONG = 16  # fills a register on every machine; the same for keys and values
SCALARS = {torch.float32: "float", torch.float64: "double"}
# Below this many multiply-adds, waking a second thread costs more than it saves.
WORK_FOR_THREADS = 100_000


# The kernel must fill results completely; tests replace this function to prefill them with NaN.
allocate_like = torch.empty_like


Ready = Callable[[Sequence[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class Plan:
    """The parts of a call that depend only on the function, sizes and options."""

    function: Callable[[bytes, bytes], None]
    sizes: tuple[int, ...]
    options: tuple[int, ...]
    outputs: list[list[int]]
    absent: tuple[int, ...]  # ranks of outputs that are not needed, passed as null tensors
    worth_threads: bool
    scattered: frozenset[int]  # positions of tensors that may have any strides
    ready: dict[Any, Ready] = field(default_factory=dict)

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Call the function on these tensors; return its outputs."""
        return self.prepare(tensors)(tensors)

    def prepare(self, tensors: Sequence[Tensor]) -> Ready:
        """Return a call complete but for addresses, for these strides and torch's thread count."""
        key = torch.get_num_threads(), *map(_strides, tensors)
        ready = self.ready.get(key)
        if ready is None:
            if len(self.ready) >= REMEMBERED_SHAPES:
                self.ready.clear()
            ready = self.ready[key] = self._prepare(tensors)
        return ready

    def _prepare(self, tensors: Sequence[Tensor]) -> Ready:
        gaps = [
            position
            for position, tensor in enumerate(tensors)
            if tensor.is_neg()  # as `z.conj().imag`
            or (position not in self.scattered and tensor.shape[-1] > 1 and tensor.stride(-1) != 1)
        ]
        suspects = [
            position
            for position, tensor in enumerate(tensors)
            if position not in gaps and _may_be_negated(tensor)
        ]
        layout = self._layout([*_without_gaps(tensors, gaps)])
        null_pointers = 8 * len(self.absent)
        pack = struct.Struct(f"{len(tensors) + len(self.outputs)}q{null_pointers}x").pack
        function, patterns = self.function, [_pattern(tensors[0], size) for size in self.outputs]

        def ready(tensors: Sequence[Tensor]) -> list[Tensor]:
            if suspects and any(tensors[i].is_neg() for i in suspects):
                return self.run([tensor.resolve_neg() for tensor in tensors])
            if gaps:
                tensors = _without_gaps(tensors, gaps)
            outputs = [*map(allocate_like, patterns)]
            function(layout, pack(*map(_address, tensors), *map(_address, outputs)))
            return outputs

        return ready

    def _layout(self, tensors: Sequence[Tensor]) -> bytes:
        threads = torch.get_num_threads() if self.worth_threads else 1
        strides = [tensor.stride() for tensor in tensors]
        strides += [_dense(size) for size in self.outputs]
        strides += [(0,) * rank for rank in self.absent]
        values = [*self.sizes, threads, *self.options]
        for each in strides:
            values += (len(each), *each)
        return struct.pack(f"{len(values)}q", *values)


def _may_be_negated(tensor: Tensor) -> bool:
    """Return whether a tensor with these strides can be a view of a complex tensor.

    Such a view, for example `z.conj().imag`, may be stored negated, which its strides do not show.
    An axis of size 1 may have any stride.
    """
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return all(step % 2 == 0 for size, step in steps if size > 1)


def _without_gaps(tensors: Sequence[Tensor], gaps: Sequence[int]) -> list[Tensor]:
    return [t.resolve_neg().contiguous() if i in gaps else t for i, t in enumerate(tensors)]


def _pattern(like: Tensor, size: list[int]) -> Tensor:
    """Return a tensor without memory as a template, which halves the time of an allocation."""
    pattern = like.new_empty(size)
    pattern.untyped_storage().resize_(0)
    return pattern


_strides, _address = Tensor.stride, Tensor.data_ptr


def _dense(size: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return tuple(math.prod(size[axis + 1 :]) for axis in range(len(size)))


@dataclass(frozen=True)
class CpuKernel:
    """The `forward` and `backward` functions of an operation on CPUs.

    - saved: tensors that the forward pass keeps for the backward pass, name -> axes.
    - final: states whose final values the backward pass needs as well.
    - head_axes: axes that must fit into the kernel's rows; empty if the kernel takes any size.
    - oblong: pad keys and values to separate sizes (at most 128), not to one size (at most 64).
    - options: the values of each option, in the order of the C++ enum.
    """

    signature: Signature
    source: Path
    saved: Mapping[str, str]
    head_axes: tuple[str, ...] = ("K", "V")
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    final: Sequence[str] = ()
    oblong: bool = False

    @cached_property
    def saved_axes(self) -> list[Axes]:
        """The axes of the saved tensors."""
        return [tuple(axes.split()) for axes in self.saved.values()]

    @property
    def widest(self) -> int:
        """The largest head size that the kernel supports."""
        return LANES[-1] if self.oblong else WIDEST_SQUARE

    def library(self, dtype: torch.dtype, sizes: Sizes) -> cpu_build.Library:
        """Return the kernel compiled for this dtype and head size; raise `BuildError`."""
        lanes = [next(n for n in LANES if n >= sizes[axis]) for axis in self.head_axes]
        keys, values = lanes if self.oblong else [max(lanes, default=LANES[0])] * 2
        if keys != values:
            keys, values = max(keys, NARROWEST_OBLONG), max(values, NARROWEST_OBLONG)
        return cpu_build.library(self.source, SCALARS[dtype], (keys, values))

    def why_not(self, request: Request) -> str | None:
        """Return why this kernel cannot run such a call; None if it can, after building it."""
        if request.device.type != "cpu":
            return f"the tensors are on {request.device}"
        for axis in self.head_axes:
            if request.sizes[axis] > self.widest:
                return f"head size {axis} = {request.sizes[axis]} is above {self.widest}"
            if request.sizes[axis] == 0:
                return f"head size {axis} is 0"
        try:
            self.library(request.dtype, request.sizes)
        except (cpu_build.BuildError, OSError) as error:
            return str(error)
        return None

    def forward(self, *call: Any) -> list[Tensor]:
        """Return y, the final state and the tensors saved for the backward pass."""
        return self._run("forward", call, len(self.signature.arguments))

    def backward(self, *call: Any) -> list[Tensor]:
        """Return the gradients of inputs, weights and initial state, in the arguments' order."""
        count = len(self.signature.arguments) + len(self.saved) + len(self.final)
        return self._run("backward", call, count + 1 + len(self.signature.state))

    def _run(self, function: str, call: Sequence[Any], tensors: int) -> list[Tensor]:
        sizes = self.signature.check(call[: len(self.signature.arguments)])
        return self.plan(function, call[0].dtype, sizes, call[tensors:]).run(call[:tensors])

    def plan(self, function: str, dtype: torch.dtype, sizes: Sizes, options: Sequence[Any]) -> Plan:
        """Return the plan of `forward`, `backward` or `infer` (forward without saving)."""
        key = function, dtype, *options
        plan = sizes.plans.get(key)
        if plan is None:
            plan = sizes.plans[key] = self._plan(function, dtype, sizes, options)
        return plan

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
            tuple(len(axes) for axes in absent),
            steps * head**2 >= WORK_FOR_THREADS,
            self._scattered,
        )

    @cached_property
    def _scattered(self) -> frozenset[int]:
        """Return positions of tensors with any strides; all others need a contiguous last axis."""
        last = [argument.axes[-1] for argument in self.signature.arguments]
        return frozenset(i for i, axis in enumerate(last) if not set(axis) & set("KVD"))

    def _encode(self, options: Sequence[Any]) -> tuple[int, ...]:
        """Return each option's index in the C++ enum; raise a `ValueError` for an unknown value."""
        for (name, choices), value in zip(self.options.items(), options, strict=True):
            if value not in choices:
                known = ", ".join(choices)
                raise ValueError(f"{self.signature.name}: {name} is {value!r}, known: {known}")
        pairs = zip(self.options.values(), options, strict=True)
        return tuple(choices.index(value) for choices, value in pairs)
