"""Operations composed of other operations or of PyTorch's own: the rules for every call.

A built operation (`machinery/dispatch.py`) checks its arguments, computes in the state's dtype and
ignores autocast. An `unroll` decorated with `composed` does the same.
"""

import operator
from collections.abc import Callable
from functools import wraps
from typing import Any

from fastweights.kernels.machinery.signature import (
    REMEMBERED_SHAPES,
    Function,
    Signature,
    is_traced,
)
from fastweights.kernels.recurrence import without_autocast

_kind = operator.attrgetter("shape", "dtype", "device")


def composed(name: str) -> Callable[[Function], Function]:
    """Return a decorator that makes `unroll` the operation `name`.

    Its calls raise a one-line `ValueError` for a wrong shape, dtype or device, and a `TypeError`
    for an argument that is not a tensor. Its arguments are cast to float64 if a state tensor is
    float64, and to float32 otherwise.
    """

    def decorate(unroll: Function) -> Function:
        signature = Signature(name, unroll)
        good: set[tuple[Any, ...]] = set()  # tensor kinds that passed the checks and need no cast

        @wraps(unroll)
        def call(*args: Any, **options: Any) -> tuple[Any, Any]:
            tensors, chosen = signature.flatten(args, options)
            kinds = _kinds(tensors)
            if not kinds or kinds not in good:
                signature.check_tensors(tensors)
                signature.check(tensors)
                cast = signature.cast([*tensors])
                if kinds and all(map(operator.is_, cast, tensors)):
                    _remember(good, kinds)
                tensors = cast
            with without_autocast(tensors[0].device.type):
                return unroll(*signature.unflatten(tensors, chosen))

        return call

    return decorate


def _kinds(tensors: list[Any]) -> tuple[Any, ...]:
    """Return each tensor's shape, dtype and device; () while traced or for other objects."""
    if is_traced():
        return ()
    try:
        return tuple(map(_kind, tensors))
    except AttributeError:
        return ()


def _remember(good: set[tuple[Any, ...]], kinds: tuple[Any, ...]) -> None:
    if len(good) >= REMEMBERED_SHAPES:
        good.clear()
    good.add(kinds)
