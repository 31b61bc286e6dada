"""Parts shared by every recurrence: the reset at a first row, and the plain loop over time.

The loop *defines* an unrolled operation and is its slowest implementation. Every fast backend is
tested against it.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

State = TypeVar("State", bound=tuple)  # a NamedTuple of tensors, or of further states


def map_state(function: Callable[[Tensor], Tensor], state: State | Tensor) -> State | Tensor:
    """Apply `function` to every tensor of a state, including those of nested states."""
    mapped = [
        function(part) if isinstance(part, Tensor) else map_state(function, part) for part in state
    ]
    return type(state)(*mapped) if hasattr(state, "_fields") else type(state)(mapped)


def tensors_of(state: State) -> list[Tensor]:
    """Return every tensor of a state, in the order in which `refilled` takes them."""
    found: list[Tensor] = []
    for part in state:
        found += [part] if isinstance(part, Tensor) else tensors_of(part)
    return found


def refilled(form: State, tensors: Iterable[Any]) -> State:
    """Return a state structured like `form`, with its tensors replaced by `tensors`, in order.

    Raises:
        ValueError: there are fewer or more tensors than in `form`.
    """
    given, wanted = list(tensors), len(tensors_of(form))
    if len(given) != wanted:
        raise ValueError(f"a state of {wanted} tensors cannot be filled with {len(given)}")
    following = iter(given)
    return map_state(lambda _: next(following), form)


def forget(state: State, is_first: Tensor) -> State:
    """Return a state that is zero in columns where `is_first` is true, and unchanged elsewhere.

    `state`: tensors [B, ...]; `is_first`: bool [B]. Selects rather than multiplies, so a NaN or
    infinity from an old episode does not survive.
    """
    return map_state(lambda tensor: _zero_where(is_first, tensor), state)


def _zero_where(is_first: Tensor, tensor: Tensor) -> Tensor:
    first = is_first.reshape(is_first.shape + (1,) * (tensor.ndim - 1))
    return torch.where(first, torch.zeros((), dtype=tensor.dtype, device=tensor.device), tensor)


def without_autocast(device: str) -> AbstractContextManager[Any]:
    """Return a context manager that turns autocast off for this device type."""
    on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if on else nullcontext()


def step_once(
    step: Callable[..., tuple[Tensor, State]],
    inputs: Sequence[Tensor],
    state: State,
    *others: Any,
    **constants: Any,
) -> tuple[Tensor, State]:
    """Apply `step(*inputs, state, *others, **constants)` in the state's dtype, as unrolls do.

    Inputs [B, ...] of another dtype are cast, and autocast does not affect the computation.
    """
    cast = [tensor.to(state[0].dtype) for tensor in inputs]
    with without_autocast(state[0].device.type):
        return step(*cast, state, *others, **constants)


def loop_over_time(
    step: Callable[..., tuple[Tensor, State]],
    inputs: Sequence[Tensor],
    is_first: Tensor,
    state: State,
    empty: Tensor,
) -> tuple[Tensor, State]:
    """Apply `step(*inputs[t], state) -> (y[t], state)` along the first axis of `inputs`.

    Computes in the state's dtype, as `step_once` does (bfloat16 inputs, float32 state).

    Args:
        step: one step of the recurrence.
        inputs: tensors [T, B, ...].
        is_first: bool [T, B]; the state is reset before row t.
        state: the state before row 0.
        empty: a tensor shaped like y, whose copy is returned for T = 0. The state is then a copy,
            too: results never share the caller's memory.
    """
    if is_first.shape[0] == 0:
        return empty.clone(), map_state(torch.clone, state)
    cast, outputs = [tensor.to(state[0].dtype) for tensor in inputs], []
    with without_autocast(state[0].device.type):
        for first, *row in zip(is_first, *cast, strict=True):
            y, state = step(*row, forget(state, first))
            outputs.append(y)
    return torch.stack(outputs), state
