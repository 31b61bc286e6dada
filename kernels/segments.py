"""Recurrences computed by PyTorch's own kernels, which do not support resets.

On a GPU these are cuDNN's kernels. A reset cuts a stream in two, and each piece becomes a separate
sequence. One call processes the pieces of all streams, as packed sequences of unequal length. To
find the pieces, the host waits for `is_first` once. On CPUs packed sequences are slow and calls are
cheap. There, an unroll is cut at every row where any stream is reset, with one call per stretch.

TF32, cuDNN's default, is turned off in both passes. The setting is that of cuDNN's recurrent
networks and is global to the process.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.backends import cudnn

from fastweights.kernels.machinery.dispatch import requested_backend
from fastweights.kernels.machinery.signature import may_wait
from fastweights.kernels.recurrence import State, forget, map_state

Rows = Float[Tensor, "T B E"]
Hidden = Float[Tensor, "T B D"]
# (sequence, state) -> (y, next state). A sequence is (x,) or (packed rows, batch sizes).
Whole = Callable[[Sequence[Tensor], State], tuple[Tensor, State]]


@dataclass
class Exactness:
    """Keeps TF32 off from the first `begin` to the last `end` across all threads.

    A backward pass may contain forward passes, which checkpointing repeats; TF32 stays off until
    the outer pass ends. If a backward pass raises, the thread's next one ends for it.
    """

    before: str = "none"  # cuDNN's setting outside the calls
    threads: set[int] = field(default_factory=set)  # threads between `begin` and `end`
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, *_: object) -> None:
        """Turn TF32 off, unless a call in another thread has done so."""
        with self.lock:
            if not self.threads:
                self.before = cudnn.rnn.fp32_precision
                self._set("ieee")
            self.threads.add(threading.get_ident())

    def end(self, *_: object) -> None:
        """Restore TF32 if no other thread is in a call."""
        with self.lock:
            self.threads.discard(threading.get_ident())
            if not self.threads:
                self._set(self.before)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        is_within = threading.get_ident() in self.threads
        self.begin()
        try:
            yield
        finally:
            if not is_within:
                self.end()

    def _set(self, precision: str) -> None:
        if self.before == "tf32":  # other settings stay as the user made them
            cudnn.rnn.fp32_precision = precision


exact = Exactness()


class Pieces(NamedTuple):
    """The sequences between resets, longest first, packed as `torch.nn.utils.rnn` packs them.

    All tensors but `batch_sizes` are on the device of the data.
    """

    batch_sizes: Tensor  # [longest], on the CPU: number of pieces that reach each step
    rows: Tensor  # [T * B]: for each packed row, its index in [T, B]
    places: Tensor  # [T * B]: for each row of [T, B], its index among packed rows
    first: Tensor  # [B]: the piece at each column's beginning
    last: Tensor  # [B]: the piece at each column's end

    @property
    def count(self) -> int:
        """Return the number of pieces."""
        return int(self.batch_sizes[0])


def pieces(is_first: Bool[Tensor, "T B"]) -> Pieces | None:
    """Return the pieces of an unroll; None if there are no resets after row 0."""
    T, B = is_first.shape
    begins = torch.clone(is_first.cpu().t(), memory_format=torch.contiguous_format)  # waits
    begins[:, 0] = True
    start = begins.flatten().nonzero().flatten()
    if len(start) == B:
        return None
    piece = begins.flatten().cumsum(0) - 1  # of each row, column by column
    lengths = start.diff(append=start.new_tensor([B * T]))
    rank = lengths.argsort(descending=True, stable=True).argsort()[piece]
    row = torch.arange(B * T, device=piece.device)
    step = row - start[piece]
    batch_sizes = step.bincount()
    place = (batch_sizes.cumsum(0) - batch_sizes)[step] + rank
    rows = torch.empty_like(row).scatter_(0, place, row % T * B + row // T)
    places = place.view(B, T).t().flatten()
    first, last = rank.view(B, T)[:, 0], rank.view(B, T)[:, -1]
    moved = torch.cat([rows, places, first, last]).to(is_first.device)
    return Pieces(batch_sizes, *moved.split([T * B, T * B, B, B]))


def unroll_by_pieces(
    whole: Whole, x: Rows, is_first: Bool[Tensor, "T B"], state: State
) -> tuple[Hidden, State]:
    """Unroll with one call of `whole`, with the pieces packed if there are resets after row 0."""
    state = forget(state, is_first[0])
    cut = pieces(is_first)
    if cut is None:
        return whole((x,), state)
    begun = map_state(
        lambda part: part.new_zeros(cut.count, part.shape[1]).index_copy(0, cut.first, part), state
    )
    packed = x.flatten(0, 1).index_select(0, cut.rows)
    y, ended = whole((packed, cut.batch_sizes), begun)
    state = map_state(lambda part: part.index_select(0, cut.last), ended)
    return y.index_select(0, cut.places).unflatten(0, is_first.shape), state


def unroll_by_stretches(
    whole: Whole, x: Rows, is_first: Bool[Tensor, "T B"], state: State
) -> tuple[Hidden, State]:
    """Unroll with one call of `whole` for each stretch of rows without a reset."""
    cuts = is_first[1:].any(1).nonzero().flatten().tolist()
    parts = []
    for start, stop in pairwise([0, *(cut + 1 for cut in cuts), len(x)]):
        y, state = whole((x[start:stop],), forget(state, is_first[start]))
        parts.append(y)
    return torch.cat(parts), state


def one_layer(
    kernel: Callable[..., tuple[Tensor, ...]],
    weights: Sequence[Tensor],
    has_biases: bool,
    sequence: Sequence[Tensor],
    state: State,
) -> tuple[Tensor, State]:
    """Call `torch.lstm`, `torch.gru` or `torch.rnn_tanh`; the last two arguments are `Whole`'s."""
    layer = [part[None] for part in state]
    before = layer if len(layer) > 1 else layer[0]
    settings = (has_biases, 1, 0.0, torch.is_grad_enabled(), False)
    layout = () if len(sequence) > 1 else (False,)  # batch_first
    if weights[0].is_cuda:
        _expect_copies()
    with exact():
        y, *after = kernel(*sequence, before, weights, *settings, *layout)
    if y.grad_fn is not None:  # around cuDNN's backward pass, which is one node of the graph
        y.grad_fn.register_prehook(exact.begin)
        y.grad_fn.register_hook(exact.end)
    return y, type(state)(*(part[0] for part in after))


@cache
def _expect_copies() -> None:
    """Silence a warning: cuDNN copies the weights on each call, which here is a whole unroll."""
    said = "RNN module weights are not part of single contiguous chunk"
    warnings.filterwarnings("ignore", said)


def is_for_the_loop(x: Rows) -> bool:
    """Return whether the plain loop should unroll x.

    It must do so if there is nothing to compute or the host must not wait. On a GPU the loop is
    also faster for a single step, because it neither waits nor copies weights.
    """
    return x.numel() == 0 or not may_wait(x) or (x.is_cuda and len(x) == 1)


def by_pytorch(
    kernel: Callable[..., tuple[Tensor, Tensor]],
    reference: Callable[..., tuple[Tensor, State]],
    x: Rows,
    is_first: Bool[Tensor, "T B"],
    state: State,
    weights: Sequence[Tensor],
) -> tuple[Hidden, State]:
    """Unroll a recurrence whose state is one hidden vector.

    Call `reference`, the plain loop, where the loop is better or that backend is selected.
    """
    if is_for_the_loop(x) or requested_backend() == "reference":
        return reference(x, is_first, state, weights)
    unroll = unroll_by_pieces if x.is_cuda else unroll_by_stretches
    return unroll(partial(one_layer, kernel, weights, True), x, is_first, state)
