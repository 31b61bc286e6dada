"""What an operation is called with, read from the annotations of its reference's `unroll`.

Shapes are written once, there. From them come the checks, whose messages name the argument, the
order of tensors that every compiled backend is called with, and the shapes of what it returns.
"""

import inspect
import operator
import re
import threading
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

Axes = tuple[str, ...]
REMEMBERED_SHAPES = 1024
# "D4" for 4 * D: for annotations that jaxtyping reads before it knows D.
_MULTIPLE = re.compile(r"^([A-Z])(\d+)$")
_shape_of = operator.attrgetter("shape")
_host = threading.local()


def may_wait(tensor: Tensor) -> bool:
    """Whether the host may ask what `tensor` holds: not while a graph is traced or recorded."""
    if is_traced() or getattr(_host, "may_not_wait", False):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


@contextmanager
def without_waiting() -> Iterator[None]:
    """In this thread, `may_wait` is false: kernels choose as in a CUDA graph's recording."""
    before = getattr(_host, "may_not_wait", False)
    _host.may_not_wait = True
    try:
        yield
    finally:
        _host.may_not_wait = before


def is_traced() -> bool:
    """Whether something other than plain eager autograd watches this call.

    A call of a C function is invisible to `torch.compile`, `torch.jit.trace`, dispatch modes (as of
    `make_fx` and fake tensors), `torch.func` and forward-mode derivatives: they need an operator.
    """
    return (
        torch.compiler.is_compiling()  # first: dynamo knows it, and looks no further
        or _is_tracing()
        or _dispatch_modes() > 0
        or in_functorch()
        or forward_ad._current_level >= 0
    )


def is_watched(grads: Sequence[Tensor | None]) -> bool:
    """Whether a way back with these gradients is to be differentiated, traced or batched.

    `is_grads_batched` of `torch.autograd.grad` hands over tensors without numbers of their own.
    """
    return torch.is_grad_enabled() or is_traced() or any(map(_is_batched, grads))


def _is_batched(grad: Tensor | None) -> bool:
    return grad is not None and torch._C._functorch.is_legacy_batchedtensor(grad)


# Each is asked in every call while acting: the functions around them take longer than they do.
_is_tracing = torch._C._is_tracing
_dispatch_modes = torch._C._len_torch_dispatch_stack
in_functorch = torch._C._are_functorch_transforms_active


class Sizes(dict[str, Any]):
    """The size of each axis letter; `plans` keeps what backends work out for these sizes once."""

    __slots__ = ("plans",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.plans: dict[Any, Any] = {}


@dataclass(frozen=True)
class Argument:
    name: str
    axes: Axes


def shape(axes: Axes, sizes: dict[str, Any]) -> list[Any]:
    """Axes such as ("B", "H", "3*D+4") as numbers."""
    return [sizes[axis] if axis in sizes else _calculated(axis, sizes) for axis in axes]


def _calculated(axis: str, sizes: dict[str, Any]) -> Any:
    """A sum of products of letters and numbers; in steps that torch.compile can trace."""
    total = 0
    for term in axis.split("+"):
        product = 1
        for factor in term.split("*"):
            product = product * (sizes[factor] if factor in sizes else int(factor))
        total = total + product
    return total


def _tensors(name: str, annotation: Any) -> list[Argument]:
    """The tensors behind one parameter: itself, or the fields of a NamedTuple."""
    if hasattr(annotation, "dim_str"):
        axes = annotation.dim_str.split()
        return [Argument(name, tuple(_MULTIPLE.sub(r"\2*\1", axis) for axis in axes))]
    if hasattr(annotation, "_fields"):
        fields = typing.get_type_hints(annotation)
        return [a for field, hint in fields.items() for a in _tensors(f"{name}.{field}", hint)]
    return []


@dataclass(frozen=True)
class Signature:
    """`law(*inputs, is_first, state, *weights, **options) -> (y, state)`, taken apart."""

    name: str
    law: Callable[..., tuple[Tensor, Any]]
    _seen: dict[tuple[torch.Size, ...], Sizes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        # torch.compile can trace the use of these, but not their first use.
        _ = self._call_shape, self._state_type

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return typing.get_type_hints(self.law)

    @cached_property
    def parameters(self) -> list[str]:
        return list(inspect.signature(self.law).parameters)

    @cached_property
    def inputs(self) -> list[Argument]:
        """The arguments before `is_first`, a row for each step."""
        names = self.parameters[: self.parameters.index("is_first")]
        return [argument for name in names for argument in _tensors(name, self._hints[name])]

    @cached_property
    def weight_parameters(self) -> list[str]:
        after = self.parameters[self.parameters.index("state") + 1 :]
        return [name for name in after if _tensors(name, self._hints[name])]

    @cached_property
    def weights(self) -> list[Argument]:
        """What all steps and batch columns share."""
        names = self.weight_parameters
        return [argument for name in names for argument in _tensors(name, self._hints[name])]

    @cached_property
    def is_first(self) -> list[Argument]:
        return _tensors("is_first", self._hints["is_first"])

    @cached_property
    def state(self) -> list[Argument]:
        return _tensors("state", self._hints["state"])

    @cached_property
    def output(self) -> Argument:
        return _tensors("y", typing.get_args(self._hints["return"])[0])[0]

    @cached_property
    def options(self) -> dict[str, Any]:
        """The arguments that are not tensors, with their defaults."""
        tensors = {"is_first", "state", *self.weight_parameters, *(a.name for a in self.inputs)}
        parameters = inspect.signature(self.law).parameters
        return {name: p.default for name, p in parameters.items() if name not in tensors}

    @cached_property
    def arguments(self) -> list[Argument]:
        """All tensors, in the order in which a compiled backend takes them."""
        return [*self.inputs, *self.weights, *self.is_first, *self.state]

    @cached_property
    def is_first_position(self) -> int:
        return len(self.inputs) + len(self.weights)

    @cached_property
    def differentiable(self) -> list[int]:
        """Positions of the tensors that have a gradient: all but is_first."""
        return [i for i in range(len(self.arguments)) if i != self.is_first_position]

    def flatten(self, args: Sequence[Any], options: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """A call's tensors and the values of its options, both in order."""
        count, expected, defaults = self._call_shape
        if len(args) != expected or (options and not options.keys() <= self.options.keys()):
            bound = inspect.signature(self.law).bind(*args, **options)
            bound.apply_defaults()
            args, options = list(bound.arguments.values())[:expected], bound.arguments
        chosen = [options.get(name, default) for name, default in defaults] if defaults else []
        if expected == count + 2:
            return [*args[:-1], *args[-1]], chosen
        weights: list[Any] = []
        for group in args[count + 2 :]:
            weights.extend((group,) if isinstance(group, Tensor) else group)
        return [*args[:count], *weights, args[count], *args[count + 1]], chosen

    @cached_property
    def _call_shape(self) -> tuple[int, int, list[tuple[str, Any]]]:
        """How many inputs, how many arguments that hold tensors, and the options' defaults."""
        count = len(self.inputs)
        return count, count + 2 + len(self.weight_parameters), list(self.options.items())

    def unflatten(self, tensors: Sequence[Tensor], options: Sequence[Any]) -> list[Any]:
        """The positional arguments of the law, from the tensors and options in order."""
        inputs, weights = len(self.inputs), len(self.weights)
        remaining = iter(tensors[inputs : inputs + weights])
        groups = []
        for name in self.weight_parameters:
            hint, size = self._hints[name], len(_tensors(name, self._hints[name]))
            values = [next(remaining) for _ in range(size)]
            groups.append(hint(*values) if hasattr(hint, "_fields") else values[0])
        is_first, *state = tensors[inputs + weights :]
        return [*tensors[:inputs], is_first, self.make_state(state), *groups, *options]

    def make_state(self, tensors: Sequence[Tensor]) -> Any:
        return self._state_type(*tensors)

    @cached_property
    def _state_type(self) -> Callable[..., Any]:
        return self._hints["state"]

    def check(self, tensors: Sequence[Tensor]) -> Sizes:
        """The size of each axis letter; a `ValueError` that names the first argument in the way."""
        if is_traced():
            return self.sizes(tensors)
        key = (*map(_shape_of, tensors),)
        sizes = self._seen.get(key)
        if sizes is None:
            sizes = self.sizes(tensors)
            if len(self._seen) >= REMEMBERED_SHAPES:
                self._seen.clear()
            self._seen[key] = sizes
        return sizes

    def sizes(self, tensors: Sequence[Tensor]) -> Sizes:
        """As `check`, nothing remembered: works on shapes that are symbols."""
        sizes = Sizes()
        for argument, tensor in zip(self.arguments, tensors, strict=True):
            if tensor.ndim != len(argument.axes):
                self._refuse(argument, tensor, sizes)
            for axis, size in zip(argument.axes, tensor.shape, strict=True):
                if axis.isalpha():
                    sizes.setdefault(axis, size)
        for argument, tensor in zip(self.arguments, tensors, strict=True):
            if list(tensor.shape) != shape(argument.axes, sizes):
                self._refuse(argument, tensor, sizes)
        return sizes

    def cast(self, tensors: list[Tensor]) -> list[Tensor]:
        """The tensors in the dtype of the computation; refuses mixed devices and odd dtypes.

        float64 where the state is, float32 otherwise: the state is never kept in half precision.
        """
        device = tensors[0].device
        dtype = torch.float64 if tensors[-1].dtype is torch.float64 else torch.float32
        for position, tensor in enumerate(tensors):
            wanted = torch.bool if position == self.is_first_position else dtype
            if tensor.device != device:
                self._refuse_kind(position, f"is on {tensor.device}, expected {device}")
            if tensor.dtype is wanted:
                continue
            if wanted is torch.bool or not tensor.is_floating_point():
                expected = "torch.bool" if wanted is torch.bool else "a floating dtype"
                self._refuse_kind(position, f"has dtype {tensor.dtype}, expected {expected}")
            tensors[position] = tensor.to(dtype)
        return tensors

    def _refuse(self, argument: Argument, tensor: Tensor, sizes: Sizes) -> typing.NoReturn:
        letters = ", ".join(argument.axes)
        known = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
        expected = f"expected [{letters}]" + (f" with {known}" if known else "")
        raise ValueError(f"{self.name}: {argument.name} has shape {list(tensor.shape)}, {expected}")

    def _refuse_kind(self, position: int, problem: str) -> typing.NoReturn:
        raise ValueError(f"{self.name}: {self.arguments[position].name} {problem}")
