"""Choice of a recurrence's backend. Each recurrence is an `Operation` with named backends.

`auto` selects the fastest backend that supports the call, and logs once if this is not the device's
own kernel. The environment variable FASTWEIGHTS_BACKEND forces a backend for the whole process, and
`with backend("reference"):` forces one for a block of code.
"""

import logging
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from fastweights.host import unknown_name
from fastweights.kernels.machinery.library import Prepared, wants_gradient
from fastweights.kernels.machinery.request import Request
from fastweights.kernels.machinery.signature import (
    REMEMBERED_SHAPES,
    Function,
    Signature,
    Sizes,
    is_traced,
)
from fastweights.kernels.recurrence import without_autocast

BACKENDS = ("auto", "reference", "chunked", "cpu", "cuda")
FASTEST_FIRST = ("cuda", "cpu", "chunked", "reference")
OF_ONE_DEVICE = ("cuda", "cpu")
ENVIRONMENT_VARIABLE = "FASTWEIGHTS_BACKEND"
# For shorter unrolls the chunked form is no faster than the loop.
SHORTEST_CHUNKED_UNROLL = 8

log = logging.getLogger("fastweights")
_UNKNOWN: Any = object()
_kind = operator.attrgetter("shape", "dtype", "is_cpu")
_strides = Tensor.stride
_operations: dict[str, "Operation"] = {}
_forced: ContextVar[str | None] = ContextVar("forced_backend", default=None)


def check_backend(name: str) -> str:
    """Return `name`; if it is unknown, raise a `ValueError` that lists the known backends."""
    if name not in BACKENDS:
        raise ValueError(unknown_name("kernel backend", name, BACKENDS))
    return name


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Force a backend for every operation called inside the block, in this thread."""
    token = _forced.set(check_backend(name))
    try:
        yield
    finally:
        _forced.reset(token)


def use_backend(name: str) -> None:
    """Force a backend for the whole process, as the environment variable does; `auto` undoes it."""
    os.environ[ENVIRONMENT_VARIABLE] = check_backend(name)
    _environment.cache_clear()


@contextmanager
def restoring_backend() -> Iterator[None]:
    """Undo any `use_backend` inside the block or decorated function when it ends."""
    before = os.environ.get(ENVIRONMENT_VARIABLE)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(ENVIRONMENT_VARIABLE, None)
        else:
            os.environ[ENVIRONMENT_VARIABLE] = before
        _environment.cache_clear()


def requested_backend() -> str:
    """Return the innermost `with backend(...)`, or else the environment variable, or `auto`."""
    return _forced.get() or _environment()


# A compiled graph treats the answer as a constant: it keeps the backend that it was traced with.
requested_backend._dynamo_marked_constant = True


@cache
def _environment() -> str:
    try:
        return check_backend(os.environ.get(ENVIRONMENT_VARIABLE) or "auto")
    except ValueError as error:
        raise ValueError(f"{ENVIRONMENT_VARIABLE}: {error}") from error


@runtime_checkable
class Backend(Protocol):
    """An implementation of an operation. Takes tensors in the order of `Signature.arguments`."""

    def why_not(self, request: Request) -> str | None:
        """Return why such a call cannot run here, in one line; None if it can."""

    def run(
        self, tensors: Sequence[Tensor], options: Sequence[Any], sizes: Sizes
    ) -> Sequence[Tensor]:
        """Return y and the final state's tensors, differentiable."""


@runtime_checkable
class Preparing(Protocol):
    """A CPU backend that can prepare calls for tensors of one kind."""

    def prepare(
        self, tensors: Sequence[Tensor], options: Sequence[Any], sizes: Sizes, gradient: bool
    ) -> Prepared:
        """Return `run` for tensors of the same shapes, strides, dtypes and device."""


@dataclass(frozen=True)
class PyTorch:
    """A backend in plain PyTorch, for any size, and for any device unless `device` is set."""

    signature: Signature
    function: Function
    device: str | None = None

    def why_not(self, request: Request) -> str | None:
        """Return why such a call cannot run here, in one line; None if it can."""
        kind = request.device.type
        if self.device not in (None, kind):
            return f"the tensors are on {request.device}"
        if kind == "cuda" and not torch.cuda.is_available():
            return "torch sees no CUDA device"
        return None

    def run(
        self, tensors: Sequence[Tensor], options: Sequence[Any], sizes: Sizes
    ) -> Sequence[Tensor]:
        """Run the function on the tensors; return y and the final state's tensors."""
        y, state = self.function(*self.signature.unflatten(tensors, options))
        return y, *state


@dataclass(frozen=True)
class Operation:
    """A recurrence over [T, B, ...] inputs with `is_first` and a state, with one or more backends.

    Called like its reference: `operation(*inputs, is_first, state, ...) -> (y, state)`. Computes in
    the state's dtype (float32 in training, float64 in gradient checks), even under autocast.
    """

    signature: Signature
    backends: dict[str, Backend] = field(default_factory=dict)
    known_options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prepared: dict[Any, Prepared | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _operations[self.name] = self

    @property
    def name(self) -> str:
        """The operation's name."""
        return self.signature.name

    def request(
        self, device: torch.device, dtype: torch.dtype, sizes: Sizes, options: Sequence[Any] = ()
    ) -> Request:
        """Return the description of a call; `options` are in order, or empty for the defaults."""
        names = self.signature.options
        values = options or names.values()
        return Request(device, dtype, sizes, dict(zip(names, values, strict=True)))

    def choose(self, request: Request) -> str:
        """Return the name of the backend that such a call would use now."""
        self._check_options(request.options)
        wanted = requested_backend()
        if wanted != "auto":
            return self._forced(wanted, request)
        device, slower_because = request.device.type, None
        for name in FASTEST_FIRST:
            if name in OF_ONE_DEVICE and name != device:
                continue
            if name not in self.backends:
                reason = f"it has no {name} kernel"
            elif name == "chunked" and request.sizes["T"] < SHORTEST_CHUNKED_UNROLL:
                continue
            else:
                reason = self.backends[name].why_not(request)
            if reason is None:
                break
            if name == device:
                slower_because = reason
        if slower_because:
            say_once(f"{self.name} runs on the slower {name} backend: {slower_because}")
        return name

    def _check_options(self, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            known = self.known_options.get(name, (value,))
            if value not in known:
                raise ValueError(f"{self.name}: {name} is {value!r}, known: {', '.join(known)}")

    def _forced(self, name: str, request: Request) -> str:
        if name not in self.backends:
            have = ", ".join(["auto", *self.backends])
            raise ValueError(f"{self.name} has no backend {name!r}; it has: {have}")
        reason = self.backends[name].why_not(request)
        if reason:
            raise ValueError(f"{self.name} cannot run on the {name} backend: {reason}")
        return name

    def __call__(self, *args: Any, **options: Any) -> tuple[Tensor, Any]:
        tensors, chosen = self.signature.flatten(args, options)
        if is_traced():
            return self._dispatch(tensors, chosen)
        backend, threads = requested_backend(), torch.get_num_threads()
        try:
            call = backend, threads, wants_gradient(tensors), *chosen
            key = (*call, *map(_kind, tensors), *map(_strides, tensors))
            prepared = self.prepared.get(key, _UNKNOWN)
        except (AttributeError, TypeError):
            self.signature.check_tensors(tensors)
            self._check_options(dict(zip(self.signature.options, chosen, strict=True)))
            raise
        if prepared is _UNKNOWN:
            prepared = self._prepare(key, tensors, chosen)
        if prepared is None:
            return self._dispatch(tensors, chosen)
        y, *state = prepared(tensors)
        return y, self.signature.make_state(state)

    def _prepare(self, key: Any, tensors: list[Tensor], options: list[Any]) -> Prepared | None:
        """Prepare a call and keep it, if the tensors need no casts."""
        sizes, given = self.signature.check(tensors), list(tensors)
        cast = any(a is not b for a, b in zip(self.signature.cast(given), tensors, strict=True))
        backend = self.backends[self._choose_once(given[-1], sizes, options)]
        can_prepare = not cast and isinstance(backend, Preparing)
        if len(self.prepared) >= REMEMBERED_SHAPES:
            self.prepared.clear()
        gradient = wants_gradient(tensors)
        prepared = backend.prepare(tensors, options, sizes, gradient) if can_prepare else None
        self.prepared[key] = prepared
        return prepared

    def _dispatch(self, tensors: list[Tensor], chosen: list[Any]) -> tuple[Tensor, Any]:
        with without_autocast(tensors[0].device.type):
            return self._run(tensors, chosen)

    def _run(self, tensors: list[Tensor], options: list[Any]) -> tuple[Tensor, Any]:
        sizes = self.signature.check(tensors)
        tensors = self.signature.cast(tensors)
        backend = self.backends[self._choose_once(tensors[-1], sizes, options)]
        y, *state = backend.run(tensors, options, sizes)
        return y, self.signature.make_state(state)

    def _choose_once(self, state: Tensor, sizes: Sizes, options: Sequence[Any]) -> str:
        if is_traced():
            # Unlike `int`, `index` also turns a compiled graph's symbolic size into a number.
            heads = [(a, operator.index(size)) for a, size in sizes.items() if a in "KVD"]
            call = state.device.type, state.dtype, tuple(options)
            return _choose_while_tracing(self.name, *call, *heads)
        key = requested_backend(), state.dtype, state.device, *options
        chosen = sizes.plans.get(key)
        if chosen is None:
            request = self.request(state.device, state.dtype, sizes, options)
            chosen = sizes.plans[key] = self.choose(request)
        return chosen


def _choose_while_tracing(
    name: str, device: str, dtype: torch.dtype, options: tuple[Any, ...], *heads: tuple[str, int]
) -> str:
    """Return the choice for a compiled graph: as for a long unroll, since T may be anything."""
    sizes = Sizes({**dict.fromkeys("TBH", SHORTEST_CHUNKED_UNROLL), **dict(heads)})
    operation = _operations[name]
    return operation.choose(operation.request(torch.device(device), dtype, sizes, options))


# Same effect as torch.compiler.assume_constant_result, without importing the compiler everywhere.
_choose_while_tracing._dynamo_marked_constant = True


@cache
def say_once(line: str) -> None:
    """Log a line, once per process."""
    log.warning(line)
