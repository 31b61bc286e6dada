"""Which implementation of a recurrence runs: one `Operation` an op, one name a backend.

`auto` takes the fastest backend that can do the call. A backend is forced for a whole process by
the environment variable FASTWEIGHTS_BACKEND, for a block of code by `with backend("reference"):`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

BACKENDS = ("auto", "reference", "chunked", "cpu", "cuda")
ENVIRONMENT_VARIABLE = "FASTWEIGHTS_BACKEND"

_forced: ContextVar[str | None] = ContextVar("forced_backend", default=None)


def check_backend(name: str) -> str:
    """Returns `name`; raises a `ValueError` that lists the known backends if it is none."""
    if name not in BACKENDS:
        raise ValueError(f"unknown kernel backend {name!r}; known: {', '.join(BACKENDS)}")
    return name


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Forces a backend for every operation called inside the block."""
    token = _forced.set(check_backend(name))
    try:
        yield
    finally:
        _forced.reset(token)


def requested_backend() -> str:
    """The innermost `with backend(...)`, else the environment variable, else `auto`."""
    return _forced.get() or check_backend(os.environ.get(ENVIRONMENT_VARIABLE) or "auto")


@dataclass(frozen=True)
class Operation:
    """A recurrence over [T, B, ...] inputs with `is_first` and a state, in one or more backends.

    Called as its reference is: `operation(*inputs, is_first, state, ...) -> (y, state)`. Runs in
    the state's dtype (float32 in training, float64 in gradient checks), inside autocast too.
    """

    name: str
    reference: Callable[..., tuple[Tensor, Any]]
    fast: dict[str, Callable[..., tuple[Tensor, Any]]] = field(default_factory=dict)

    def implementation(self) -> Callable[..., tuple[Tensor, Any]]:
        """The implementation that a call would take now."""
        wanted = requested_backend()
        if wanted == "reference":
            return self.reference
        if wanted == "auto":
            return next(iter(self.fast.values()), self.reference)
        if wanted not in self.fast:
            have = ", ".join(["auto", "reference", *self.fast])
            raise ValueError(f"{self.name} has no backend {wanted!r}; it has: {have}")
        return self.fast[wanted]

    def __call__(self, *inputs: Any, **options: Any) -> tuple[Tensor, Any]:
        with torch.autocast(inputs[0].device.type, enabled=False):
            return self.implementation()(*inputs, **options)
