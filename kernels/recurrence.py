"""What every recurrence shares: forgetting at a first row, and the plain loop over time.

The loop is the *definition* of an unrolled operation and its slowest implementation: each fast
backend is tested against it.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

State = TypeVar("State", bound=tuple)  # a NamedTuple of tensors, or of further states


def map_state(function: Callable[[Tensor], Tensor], state: State | Tensor) -> State | Tensor:
    """Applies `function` to every tensor of a state, however deeply nested."""
    mapped = [
        function(part) if isinstance(part, Tensor) else map_state(function, part) for part in state
    ]
    return type(state)(*mapped) if hasattr(state, "_fields") else type(state)(mapped)


def forget(state: State, is_first: Tensor) -> State:
    """A fresh (zero) state in the columns where `is_first` is true, the given one elsewhere.

    `state`: tensors [B, ...]; `is_first`: bool [B]. Selects rather than multiplies, so a NaN or
    infinity that an old episode left behind does not survive.
    """
    return map_state(lambda tensor: _zero_where(is_first, tensor), state)


def _zero_where(is_first: Tensor, tensor: Tensor) -> Tensor:
    first = is_first.reshape(is_first.shape + (1,) * (tensor.ndim - 1))
    return torch.where(first, torch.zeros((), dtype=tensor.dtype, device=tensor.device), tensor)


def loop_over_time(
    step: Callable[..., tuple[Tensor, State]],
    inputs: Sequence[Tensor],
    is_first: Tensor,
    state: State,
    empty: Tensor,
) -> tuple[Tensor, State]:
    """Applies `step(*inputs[t], state) -> (y[t], state)` along the first axis of `inputs`.

    `is_first` [T, B] forgets before row t. `empty` is what y looks like where T = 0; the state is
    a copy then: what is returned never is the caller's own memory.
    Arithmetic is in the state's dtype, whatever the inputs' (float32 state under bfloat16 inputs).
    """
    if is_first.shape[0] == 0:
        return empty.clone(), map_state(torch.clone, state)
    dtype = state[0].dtype
    rows = zip(*(tensor.to(dtype) for tensor in inputs), strict=True)
    outputs = []
    for first, row in zip(is_first, rows, strict=True):
        y, state = step(*row, forget(state, first))
        outputs.append(y)
    return torch.stack(outputs), state
