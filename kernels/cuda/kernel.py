"""The `forward` and `backward` functions that run an operation's `cuda.cu`.

Both kernels take their tensors in the order of the operator's arguments (see library.py):

    forward    inputs, weights, is_first, state | y, final state, saved
    backward   inputs, weights, is_first, state, grad_y, grad_final_state |
               saved, gradients of inputs, weights and state

Tensors left of the bar are the caller's, with any strides; those right of it are ours (see
arguments.py). A kernel gives weight gradients per batch column, which are summed here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from fastweights.kernels.cuda.arguments import Sizes as KernelSizes
from fastweights.kernels.cuda.arguments import padded, view_axes, views
from fastweights.kernels.cuda.compiler import source_file
from fastweights.kernels.cuda.launch import WARP, Kernel, launch, why_not_loaded
from fastweights.kernels.cuda.support import refuse
from fastweights.kernels.machinery.signature import Argument, Axes, Signature, Sizes, shape


@dataclass(frozen=True)
class Source:
    """A description of an operation's `cuda.cu`, given in its `cuda.py`.

    - saved: tensors that the forward pass keeps for the backward pass, name -> axes.
    - options: the supported values, by option name; the kernel gets the value's index.
    - forward_warps, backward_warps: warps per block, for head sizes up to 32 and up to 64.
    - units: axis of independent units, of any size. A block is one warp of units, and the kernel's
      first option is the number of units.
    - outer_sums: weights whose gradient is a sum, over T and B, of outer products of a saved tensor
      and an input's gradient: name -> (saved, input). The kernel has no field for this gradient.
    """

    saved: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    forward_warps: tuple[int, int] = (1, 4)
    backward_warps: tuple[int, int] = (1, 4)
    units: str | None = None
    outer_sums: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class CudaKernel:
    """The functions `forward` and `backward` of an operation on CUDA tensors."""

    signature: Signature
    source: Source

    def forward(self, *call: Any, save: bool = True) -> tuple[Tensor, ...]:
        """Return (y, *final state, *saved); without `save`, nothing is saved for backward."""
        signature, count = self.signature, len(self.signature.arguments)
        tensors, sizes = call[:count], signature.check(call[:count])
        results = [signature.output.axes, *(state.axes for state in signature.state)]
        kept = [tuple(axes.split()) for axes in self.source.saved.values()]
        made = _fresh(tensors[0], results + kept if save else results, sizes)
        own = made if save else [*made, *[None] * len(kept)]
        given = views_of(signature.arguments, tensors, sizes)
        launch(self._kernel("forward"), self._kernel_sizes(sizes, call[count:]), given, own)
        return made

    def backward(self, *call: Any) -> tuple[Tensor, ...]:
        """Return the gradients of inputs, weights and initial state, in that order."""
        signature, outcome = self.signature, [self.signature.output, *self.signature.state]
        parts = iter(call)
        tensors = [next(parts) for _ in signature.arguments]
        saved = {name: next(parts) for name in self.source.saved}
        sizes = signature.check(tensors)
        given = [*tensors, *(_or_zeros(next(parts), argument, sizes) for argument in outcome)]
        wanted = [signature.arguments[i] for i in signature.differentiable]
        by_kernel = [argument for argument in wanted if argument.name not in self.source.outer_sums]
        made = _fresh(tensors[0], [view_axes(argument.axes) for argument in by_kernel], sizes)
        launch(
            self._kernel("backward"),
            self._kernel_sizes(sizes, list(parts)),
            views_of([*signature.arguments, *outcome], given, sizes),
            [*saved.values(), *made],
        )
        found = {
            argument.name: gradient if "B" in argument.axes else gradient.sum(0)
            for argument, gradient in zip(by_kernel, made, strict=True)
        }
        for name, (left, right) in self.source.outer_sums.items():
            found[name] = sum_of_outer(saved[left], found[right])
        return tuple(found[argument.name] for argument in wanted)

    def why_not_loaded(self, device: torch.device, sizes: Sizes) -> str | None:
        """Return why the GPU cannot run both kernels, in one line; None if it can."""
        both = self._kernel("forward"), self._kernel("backward")
        largest = max(sizes.get(axis, 1) for axis in "KVD")
        head_size = padded(min(largest, WARP) if self.source.units else largest)
        return why_not_loaded(both, head_size, device)

    def _kernel(self, way: Literal["forward", "backward"]) -> Kernel:
        source = source_file(self.signature.name)
        return Kernel(source, way, getattr(self.source, f"{way}_warps"))

    def _kernel_sizes(self, sizes: Sizes, options: Sequence[str]) -> KernelSizes:
        if self.source.units:
            units = sizes[self.source.units]
            lanes = min(units, WARP)
            return KernelSizes(sizes["T"], sizes["B"], -(-units // WARP), lanes, lanes, units)
        known = self.source.options
        refuse(self.signature.name, known, **dict(zip(known, options, strict=True)))
        places = [values.index(v) for values, v in zip(known.values(), options, strict=True)]
        heads = [sizes.get(axis, sizes.get("D")) for axis in "KV"]
        return KernelSizes(*(sizes[axis] for axis in "TBH"), *heads, *places)


def _fresh(like: Tensor, axes: Sequence[Axes], sizes: Sizes) -> tuple[Tensor, ...]:
    """Allocate uninitialised contiguous tensors."""
    return tuple(like.new_empty(shape(each, sizes)) for each in axes)


def _or_zeros(gradient: Tensor, argument: Argument, sizes: Sizes) -> Tensor:
    """Return the gradient, or zeros if it has no elements (see library.py)."""
    return gradient if gradient.numel() else gradient.new_zeros(shape(argument.axes, sizes))


def views_of(
    arguments: Sequence[Argument], tensors: Sequence[Tensor], sizes: Sizes
) -> list[Tensor]:
    """Return a kernel's views of the caller's tensors, in the order of its struct's fields.

    A negation that torch has deferred, as in `z.conj().imag`, is carried out first, because an
    address does not record it.
    """
    pairs = zip(arguments, tensors, strict=True)
    return [v for a, tensor in pairs for v in views(a.axes, tensor.resolve_neg(), sizes["B"])]


def sum_of_outer(left: Tensor, right: Tensor) -> Tensor:
    """Return the sum over T and B of left right^T: [T, B, H, N], [T, B, H, M] -> [H, N, M].

    With right [T, B, H] -> [H, N].
    """
    if right.ndim < left.ndim:
        return sum_of_outer(left, right.unsqueeze(-1)).squeeze(-1)
    heads = (tensor.flatten(0, 1).transpose(0, 1) for tensor in (left, right))
    return torch.bmm(next(heads).transpose(1, 2), next(heads))
