"""Checks of the arguments of unroll and step: torch's errors say less, or it broadcasts instead."""

from typing import Any

import torch
from torch import Tensor


def check_inputs(core: Any, x: Tensor, state: Any, is_first: Tensor) -> None:
    """Raise a one-line `ValueError` unless `core` (a `Core`) can unroll these arguments.

    Reads shapes and dtypes only. Skipped while the call is traced or compiled, because the graph
    may be used for other sizes.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return
    _check_x(core, x, "time", "batch")
    is_mask = isinstance(is_first, Tensor) and is_first.dtype == torch.bool
    if not is_mask or is_first.shape != x.shape[:2]:
        dtype = f"{_dtype(is_first)} " if isinstance(is_first, Tensor) else ""
        raise ValueError(
            f"is_first of {type(core).__name__} must be bool of shape {list(x.shape[:2])}, as in "
            f"x, not {dtype}{_found(is_first)}"
        )
    _check_state(core, x, state)


def check_step(core: Any, x: Tensor, state: Any) -> None:
    """Raise a one-line `ValueError` unless `core` can step with x [B, D] and `state`."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return
    _check_x(core, x, "batch")
    _check_state(core, x, state)


def _check_x(core: Any, x: Tensor, *axes: str) -> None:
    name, expected = type(core).__name__, ", ".join((*axes, str(core.input_size)))
    if not isinstance(x, Tensor):
        raise ValueError(f"x of {name} must be a tensor [{expected}], not {_kind(x)}")
    if x.ndim != len(axes) + 1 or x.shape[-1] != core.input_size:
        raise ValueError(f"x of {name} must have shape [{expected}], not {list(x.shape)}")
    _check_dtype(core, x)


def _check_state(core: Any, x: Tensor, state: Any) -> None:
    # Under autocast, x may be in half precision; the state is not.
    batch, dtype = x.shape[-2], torch.float64 if x.dtype == torch.float64 else torch.float32
    if core.state_form is None:
        core.state_form = _form(core.initial_state(1), 1)
    if _form(state, batch, dtype) != core.state_form:
        name, precise = type(core).__name__, f"x is {_dtype(x)}, and its state is not"
        difference = state_difference(state, core.initial_state(batch), "state") or precise
        raise ValueError(f"{name}: {difference}; initial_state({batch}) creates a fresh state")


def _check_dtype(core: Any, x: Tensor) -> None:
    weight = next(core.parameters(), None)
    if weight is not None and weight.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"weights of {type(core).__name__} must be float32 or float64, not {_dtype(weight)}: "
            "use torch.autocast for half precision, which keeps weights and states precise"
        )
    if x.dtype == (torch.float32 if weight is None else weight.dtype):
        return
    castable = x.is_floating_point()
    if weight is not None:  # only autocast casts then, and it leaves float64 as it is
        precise = torch.float64 in (x.dtype, weight.dtype)
        castable = castable and not precise and torch.is_autocast_enabled(x.device.type)
    if castable:
        return
    wanted = "floating-point" if weight is None else f"{_dtype(weight)}, as its weights are"
    raise ValueError(f"x of {type(core).__name__} must be {wanted}, not {_dtype(x)}")


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _form(state: Any, batch: int, dtype: torch.dtype | None = None) -> Any:
    """Return a state's types and sizes without the batch; None for a wrong batch or dtype.

    If `dtype` is None, any dtype is accepted.
    """
    if isinstance(state, Tensor):
        precise = dtype in (None, state.dtype)
        return state.shape[1:] if precise and state.shape[:1] == (batch,) else None
    if isinstance(state, tuple):
        return type(state), *(_form(part, batch, dtype) for part in state)
    return type(state)


def state_difference(given: Any, expected: Any, name: str) -> str | None:
    """Describe the first part of a state that differs from what is expected; None if none does."""
    if isinstance(expected, Tensor):
        if isinstance(given, Tensor) and given.shape == expected.shape:
            if given.dtype == expected.dtype:
                return None
            return f"{name} must be {_dtype(expected)}, not {_dtype(given)}"
        return f"{name} must be a tensor of shape {list(expected.shape)}, not {_found(given)}"
    if type(given) is not type(expected) or len(given) != len(expected):
        return f"{name} must be {_kind(expected)}, not {_kind(given)}"
    fields = getattr(expected, "_fields", None)
    for i, (part, wanted) in enumerate(zip(given, expected, strict=True)):
        place = f"{name}.{fields[i]}" if fields else f"{name}[{i}]"
        if difference := state_difference(part, wanted, place):
            return difference
    return None


def _found(value: Any) -> str:
    """Describe what was given for a tensor: `of shape [2, 3]`, or `list`."""
    return f"of shape {list(value.shape)}" if isinstance(value, Tensor) else _kind(value)


def _kind(value: Any) -> str:
    """Describe a type: `LSTMState`, or `tuple of 2 DeltaRuleState`."""
    if type(value) is tuple and value:
        return f"tuple of {len(value)} {type(value[0]).__name__}"
    return "None" if value is None else type(value).__name__
