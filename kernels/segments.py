"""Recurrences by PyTorch's own kernels, which have no resets: one call for each segment.

On a GPU these kernels are cuDNN's. An unroll is cut at the rows where any stream is reset; to find
them, the host waits for `is_first` once.

TF32, cuDNN's default, is turned off in both passes. The switch belongs to the process, so
convolutions in other threads run without TF32 during these calls.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.backends import cudnn

from fastweights.kernels.machinery.dispatch import requested_backend
from fastweights.kernels.machinery.signature import may_wait
from fastweights.kernels.recurrence import State, forget

Rows = Float[Tensor, "T B E"]
Hidden = Float[Tensor, "T B D"]


@dataclass
class Exactness:
    """Keeps TF32 off from the first `begin` to the last `end` of all threads.

    A thread is in one call at a time. A backward pass that raises has no `end`; the thread's next
    call makes up for it.
    """

    allowed: bool = True
    threads: set[int] = field(default_factory=set)  # that are between `begin` and `end`
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, *_: object) -> None:
        """Turn TF32 off, unless a call in another thread has done so."""
        with self.lock:
            if not self.threads:
                self.allowed, cudnn.allow_tf32 = cudnn.allow_tf32, False
            self.threads.add(threading.get_ident())

    def end(self, *_: object) -> None:
        """Restore TF32 if no other thread is in a call."""
        with self.lock:
            self.threads.discard(threading.get_ident())
            if not self.threads:
                cudnn.allow_tf32 = self.allowed

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()


exact = Exactness()


def unroll_by_segments(
    whole: Callable[[Tensor, State], tuple[Tensor, State]],
    x: Rows,
    is_first: Bool[Tensor, "T B"],
    state: State,
) -> tuple[Hidden, State]:
    """Apply `whole(x, state) -> (y, state)` to every stretch without a reset."""
    cuts = is_first[1:].any(1).nonzero().flatten().tolist()
    parts = []
    for start, stop in pairwise([0, *(cut + 1 for cut in cuts), len(x)]):
        y, state = whole(x[start:stop], forget(state, is_first[start]))
        parts.append(y)
    return torch.cat(parts), state


def one_layer(
    kernel: Callable[..., tuple[Tensor, ...]],
    x: Rows,
    before: Any,
    weights: Sequence[Tensor],
    has_biases: bool,
) -> tuple[Tensor, ...]:
    """Call `torch.lstm`, `torch.gru` or `torch.rnn_tanh`; `before` has a layer axis of size one."""
    learning = torch.is_grad_enabled()
    with exact():
        y, *state = kernel(x, before, weights, has_biases, 1, 0.0, learning, False, False)
    if y.grad_fn is not None:  # around cuDNN's backward pass, which is one node of the graph
        y.grad_fn.register_prehook(exact.begin)
        y.grad_fn.register_hook(exact.end)
    return y, *state


def by_pytorch(
    kernel: Callable[..., tuple[Tensor, Tensor]],
    reference: Callable[..., tuple[Tensor, State]],
    x: Rows,
    is_first: Bool[Tensor, "T B"],
    state: State,
    weights: Sequence[Tensor],
) -> tuple[Hidden, State]:
    """Unroll a recurrence with one hidden vector.

    Calls `reference`, its plain loop, where the host must not wait or that backend is chosen.
    """
    if x.numel() == 0 or not may_wait(x) or requested_backend() == "reference":
        return reference(x, is_first, state, weights)

    def whole(rows: Tensor, before: State) -> tuple[Tensor, State]:
        y, hidden = one_layer(kernel, rows, before[0][None], weights, has_biases=True)
        return y, type(before)(hidden[0])

    return unroll_by_segments(whole, x, is_first, state)
