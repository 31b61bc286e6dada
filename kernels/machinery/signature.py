"""The arguments of an operation, read from the type annotations of its reference's `unroll`.

Shapes are written only once, in these annotations. They determine the argument checks (whose
messages name the argument), the order of tensors for every compiled backend and the result shapes.
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
Function = Callable[..., tuple[Tensor, Any]]  # an unrolled recurrence: returns y and the state
REMEMBERED_SHAPES = 1024
# "D4" means 4 * D, for annotations that jaxtyping reads before it knows D.
_MULTIPLE = re.compile(r"^([A-Z])(\d+)$")
_shape_of = operator.attrgetter("shape")
_host = threading.local()


def may_wait(tensor: Tensor) -> bool:
    """Return whether the host may read `tensor`; false while a graph is traced or recorded.

    Tensors on the `meta` device have no data to read.
    """
    if is_traced() or getattr(_host, "may_not_wait", False) or tensor.is_meta:
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


@contextmanager
def without_waiting() -> Iterator[None]:
    """Make `may_wait` false in this thread, as it is while a CUDA graph is being recorded."""
    before = getattr(_host, "may_not_wait", False)
    _host.may_not_wait = True
    try:
        yield
    finally:
        _host.may_not_wait = before


def is_traced() -> bool:
    """Return whether something other than plain eager autograd observes this call.

    Direct C calls are invisible to `torch.compile`, `torch.jit.trace`, dispatch modes (`make_fx`,
    fake tensors), `torch.func` and forward-mode derivatives. All of these need an operator.
    """
    return (
        torch.compiler.is_compiling()  # first: dynamo knows the answer and skips the rest
        or _is_tracing()
        or _dispatch_modes() > 0
        or in_functorch()
        or in_forward_mode()
    )


def in_forward_mode() -> bool:
    """Return whether forward-mode derivatives are being computed, as in `torch.func.jvp`."""
    return forward_ad._current_level >= 0


def is_watched(grads: Sequence[Tensor | None]) -> bool:
    """Return whether a backward pass with these gradients is differentiated, traced or batched.

    With `is_grads_batched`, `torch.autograd.grad` passes tensors without data.
    """
    return torch.is_grad_enabled() or is_traced() or any(map(_is_batched, grads))


def _is_batched(grad: Tensor | None) -> bool:
    return grad is not None and torch._C._functorch.is_legacy_batchedtensor(grad)


# Bound once: they run in every call while acting, and looking them up costs more than calling them.
_is_tracing = torch._C._is_tracing
_dispatch_modes = torch._C._len_torch_dispatch_stack
in_functorch = torch._C._are_functorch_transforms_active


class Sizes(dict[str, Any]):
    """The size of each axis letter. Backends cache their plans for these sizes in `plans`."""

    __slots__ = ("plans",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.plans: dict[Any, Any] = {}


@dataclass(frozen=True)
class Argument:
    """A tensor argument: its name and axes."""

    name: str
    axes: Axes


def shape(axes: Axes, sizes: dict[str, Any]) -> list[Any]:
    """Return axes such as ("B", "H", "3*D+4") as numbers."""
    return [sizes[axis] if axis in sizes else _calculated(axis, sizes) for axis in axes]


def _calculated(axis: str, sizes: dict[str, Any]) -> Any:
    """Evaluate a sum of products of letters and numbers with code that torch.compile can trace."""
    total = 0
    for term in axis.split("+"):
        product = 1
        for factor in term.split("*"):
            product = product * (sizes[factor] if factor in sizes else int(factor))
        total = total + product
    return total


def _tensors(name: str, annotation: Any) -> list[Argument]:
    """Return the tensors of one parameter: the parameter itself, or a NamedTuple's fields."""
    if hasattr(annotation, "dim_str"):
        axes = annotation.dim_str.split()
        return [Argument(name, tuple(_MULTIPLE.sub(r"\2*\1", axis) for axis in axes))]
    if hasattr(annotation, "_fields"):
        fields = typing.get_type_hints(annotation)
        return [a for field, hint in fields.items() for a in _tensors(f"{name}.{field}", hint)]
    return []


@dataclass(frozen=True)
class Signature:
    """The parts of `reference(*inputs, is_first, state, *weights, **options) -> (y, state)`."""

    name: str
    reference: Function
    _seen: dict[tuple[torch.Size, ...], Sizes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        # Compute these now: torch.compile can trace reading them, but not computing them.
        for name, value in vars(type(self)).items():
            if isinstance(value, cached_property):
                getattr(self, name)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return typing.get_type_hints(self.reference)

    @cached_property
    def parameters(self) -> list[str]:
        """The names of all parameters."""
        return list(inspect.signature(self.reference).parameters)

    @cached_property
    def inputs(self) -> list[Argument]:
        """The arguments before `is_first`, with one row per step."""
        names = self.parameters[: self.parameters.index("is_first")]
        return [argument for name in names for argument in _tensors(name, self._hints[name])]

    @cached_property
    def weight_parameters(self) -> list[str]:
        """The names of the parameters that hold weights."""
        after = self.parameters[self.parameters.index("state") + 1 :]
        return [name for name in after if _tensors(name, self._hints[name])]

    @cached_property
    def weights(self) -> list[Argument]:
        """The tensors shared by all steps and batch columns."""
        names = self.weight_parameters
        return [argument for name in names for argument in _tensors(name, self._hints[name])]

    @cached_property
    def _weight_groups(self) -> list[tuple[Any, int]]:
        """For each parameter that holds weights, its type and its number of tensors."""
        hints = ((name, self._hints[name]) for name in self.weight_parameters)
        return [(hint, len(_tensors(name, hint))) for name, hint in hints]

    @cached_property
    def is_first(self) -> list[Argument]:
        """The argument `is_first`, as a one-element list."""
        return _tensors("is_first", self._hints["is_first"])

    @cached_property
    def state(self) -> list[Argument]:
        """The state's tensors."""
        return _tensors("state", self._hints["state"])

    @cached_property
    def output(self) -> Argument:
        """The output y."""
        return _tensors("y", typing.get_args(self._hints["return"])[0])[0]

    @cached_property
    def options(self) -> dict[str, Any]:
        """The arguments that are not tensors, with their defaults."""
        tensors = {"is_first", "state", *self.weight_parameters, *(a.name for a in self.inputs)}
        parameters = inspect.signature(self.reference).parameters
        return {name: p.default for name, p in parameters.items() if name not in tensors}

    @cached_property
    def arguments(self) -> list[Argument]:
        """All tensors, in the order in which a compiled backend takes them."""
        return [*self.inputs, *self.weights, *self.is_first, *self.state]

    @cached_property
    def is_first_position(self) -> int:
        """The position of `is_first` among the tensors."""
        return len(self.inputs) + len(self.weights)

    @cached_property
    def differentiable(self) -> list[int]:
        """Positions of the tensors that have a gradient: all except `is_first`."""
        return [i for i in range(len(self.arguments)) if i != self.is_first_position]

    def flatten(self, args: Sequence[Any], options: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """Return a call's tensors and the values of its options, both in order."""
        count, expected, defaults = self._call_shape
        if len(args) != expected or (options and not options.keys() <= self.options.keys()):
            bound = inspect.signature(self.reference).bind(*args, **options)
            bound.apply_defaults()
            args, options = list(bound.arguments.values())[:expected], bound.arguments
        chosen = [options.get(name, default) for name, default in defaults] if defaults else []
        state = args[count + 1]
        if not isinstance(state, tuple) or len(state) != len(self.state):
            self._refuse_group("state", state)
        if expected == count + 2:
            return [*args[:-1], *state], chosen
        weights: list[Any] = []
        for (name, size), group in zip(self._groups, args[count + 2 :], strict=True):
            if size and (not isinstance(group, (tuple, list)) or len(group) != size):
                self._refuse_group(name, group)
            weights.extend(group if size else (group,))
        return [*args[:count], *weights, args[count], *state], chosen

    @cached_property
    def _groups(self) -> list[tuple[str, int]]:
        """Each parameter that holds weights, with its number of fields: 0 for a single tensor."""
        fields = (getattr(self._hints[name], "_fields", ()) for name in self.weight_parameters)
        return list(zip(self.weight_parameters, map(len, fields), strict=True))

    @cached_property
    def _call_shape(self) -> tuple[int, int, list[tuple[str, Any]]]:
        """The numbers of inputs and of tensor arguments, and the options' defaults."""
        count = len(self.inputs)
        return count, count + 2 + len(self.weight_parameters), list(self.options.items())

    def unflatten(self, tensors: Sequence[Tensor], options: Sequence[Any]) -> list[Any]:
        """Return the reference's positional arguments, given the tensors and options in order."""
        inputs, weights = len(self.inputs), len(self.weights)
        remaining = iter(tensors[inputs : inputs + weights])
        groups = []
        for hint, size in self._weight_groups:
            values = [next(remaining) for _ in range(size)]
            groups.append(hint(*values) if hasattr(hint, "_fields") else values[0])
        is_first, *state = tensors[inputs + weights :]
        return [*tensors[:inputs], is_first, self.make_state(state), *groups, *options]

    def make_state(self, tensors: Sequence[Tensor]) -> Any:
        """Return the state with these tensors as its fields."""
        return self._state_type(*tensors)

    @cached_property
    def _state_type(self) -> Callable[..., Any]:
        return self._hints["state"]

    def check(self, tensors: Sequence[Tensor]) -> Sizes:
        """Return the size of each axis letter; raise a `ValueError` naming a wrong argument."""
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
        """Like `check`, but without a cache, so that symbolic shapes work."""
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
        """Cast the tensors to the dtype of the computation; raise `ValueError` for mixed devices.

        The dtype is float64 if a state tensor is float64, and float32 otherwise: the state is never
        kept in half precision. Also raise `ValueError` if `is_first` is not bool, or if another
        argument is not floating-point.
        """
        device, state = tensors[0].device, tensors[self.is_first_position + 1 :]
        is_double = any(tensor.dtype is torch.float64 for tensor in state)
        dtype = torch.float64 if is_double else torch.float32
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

    def check_tensors(self, tensors: Sequence[Any]) -> None:
        """Raise a `TypeError` that names the first argument that is not a tensor."""
        for argument, tensor in zip(self.arguments, tensors, strict=False):
            if not isinstance(tensor, Tensor):
                kind = type(tensor).__name__
                raise TypeError(f"{self.name}: {argument.name} is a {kind}, expected a tensor")

    def _refuse_group(self, name: str, given: Any) -> typing.NoReturn:
        hint, kind = self._hints[name], type(given).__name__
        if isinstance(given, (tuple, list)):
            kind = f"{kind} of length {len(given)}"
        fields = ", ".join(hint._fields)
        raise TypeError(f"{self.name}: {name} is a {kind}, expected {hint.__name__}({fields})")

    def _refuse(self, argument: Argument, tensor: Tensor, sizes: Sizes) -> typing.NoReturn:
        letters = ", ".join(argument.axes)
        known = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
        expected = f"expected [{letters}]" + (f" with {known}" if known else "")
        raise ValueError(f"{self.name}: {argument.name} has shape {list(tensor.shape)}, {expected}")

    def _refuse_kind(self, position: int, problem: str) -> typing.NoReturn:
        raise ValueError(f"{self.name}: {self.arguments[position].name} {problem}")
