"""The LSTM by PyTorch's own kernel, which on a GPU is cuDNN's: one call where nothing is forgotten.

That kernel knows no forgetting, so an unroll is cut at the rows where any stream forgets; to find
them the host waits for `is_first` once. It multiplies its input by weights, which are the identity
here: z is the gates' input already, and a product with ones and zeros is exact.

TF32, which cuDNN takes unless told otherwise, is off in both passes. That switch is the process's:
convolutions in other threads lose it for as long.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.backends import cudnn

from fastweights.kernels.lstm import reference
from fastweights.kernels.lstm.reference import LSTMState
from fastweights.kernels.machinery.signature import may_wait
from fastweights.kernels.recurrence import forget


@dataclass
class Exactness:
    """Keeps TF32 off from the first `begin` to the last `end`, whichever threads they are in."""

    depth: int = 0
    allowed: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, *_: object) -> None:
        with self.lock:
            if self.depth == 0:
                self.allowed, cudnn.allow_tf32 = cudnn.allow_tf32, False
            self.depth += 1

    def end(self, *_: object) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                cudnn.allow_tf32 = self.allowed

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()


exact = Exactness()


def unroll(
    z: Float[Tensor, "T B D4"],
    is_first: Bool[Tensor, "T B"],
    state: LSTMState,
    hidden_weights: Float[Tensor, "D4 D"],
) -> tuple[Float[Tensor, "T B D"], LSTMState]:
    """As `reference.unroll`; differentiable once. Where the host may not wait, it is that."""
    if z.numel() == 0 or not may_wait(z):
        return reference.unroll(z, is_first, state, hidden_weights)
    cuts = is_first[1:].any(1).nonzero().flatten().tolist()
    parts, weights = [], [torch.eye(z.shape[-1], dtype=z.dtype, device=z.device), hidden_weights]
    for start, stop in pairwise([0, *(cut + 1 for cut in cuts), len(z)]):
        state = forget(state, is_first[start])
        y, state = _whole(z[start:stop], state, weights)
        parts.append(y)
    return torch.cat(parts), state


def _whole(
    z: Float[Tensor, "T B D4"], state: LSTMState, weights: list[Tensor]
) -> tuple[Float[Tensor, "T B D"], LSTMState]:
    learning = torch.is_grad_enabled()
    before = [part[None] for part in state]  # a layer's
    with exact():
        y, hidden, cell = torch.lstm(z, before, weights, False, 1, 0.0, learning, False, False)
    if y.grad_fn is not None:  # around cuDNN's backward pass, which is one node of the graph
        y.grad_fn.register_prehook(exact.begin)
        y.grad_fn.register_hook(exact.end)
    return y, LSTMState(hidden[0], cell[0])
