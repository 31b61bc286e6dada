"""What the chunked forms share: time cut into chunks, and who may see whom across resets.

Inside a chunk, a row sees the rows of its own segment (the stretch between two resets) and, as long
as no reset lies between, the weights that the chunk began with. All masks select, forward and
backward: a NaN that an old episode left behind reaches neither a new row nor its gradient.

Matrix products over a chunk multiply what a mask has set to zero, and 0 * NaN is NaN. So rows with
an entry that is not finite enter them as zeros, and what depends on such a row is set to NaN
afterwards: the rest of its segment, no more; no gradient flows back through it. Finite inputs so
large that a product overflows are not guarded against.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

CHUNK = 32


class Chunk(NamedTuple):
    rows: slice
    visible: Bool[Tensor, "B 1 C C"]  # row i sees row j <= i
    before: Bool[Tensor, "B 1 C C"]  # the same without row i itself
    live: Bool[Tensor, "B 1 C 1"]  # row i sees the chunk's first weights
    last: Bool[Tensor, "B 1 C 1"]  # row i lies in the segment that goes on after the chunk
    carries: Bool[Tensor, "B 1 1 1"]  # the chunk's first weights go on after it


def chunks(is_first: Bool[Tensor, "T B"]) -> Iterator[Chunk]:
    """The chunks of an unroll, in order."""
    segments = is_first.t().cumsum(-1)  # 0 is the segment that the initial state belongs to
    previous = torch.zeros_like(segments[:, :1])
    for start in range(0, is_first.shape[0], CHUNK):
        rows = slice(start, start + CHUNK)
        own = segments[:, rows]
        same = (own.unsqueeze(-1) == own.unsqueeze(-2)).unsqueeze(1)
        live, last = own == previous, own == own[:, -1:]
        yield Chunk(
            rows,
            same.tril(),
            same.tril(-1),
            live[:, None, :, None],
            last[:, None, :, None],
            live[:, None, -1:, None],
        )
        previous = own[:, -1:]


def keep(mask: Tensor, values: Tensor) -> Tensor:
    """The values where the mask is true, zero elsewhere, gradients likewise."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def read_live(
    live: Bool[Tensor, "B 1 C 1"],
    queries: Float[Tensor, "B H C K"],
    weights: Float[Tensor, "B H K V"],
) -> Float[Tensor, "B H C V"]:
    """W^T q for the rows that see W, zero for the others; their gradients do not see W either."""
    return keep(live, keep(live, queries) @ weights)


class Fading(NamedTuple):
    """How much is left, in a chunk, of a memory that fades."""

    since_start: Float[Tensor, "B H C 1"]  # in each row, of what the chunk began with
    between: Float[Tensor, "B H C C"]  # in row i, of what row j <= i wrote; 1 above the diagonal

    @property
    def to_end(self) -> Float[Tensor, "B H C 1"]:
        """In the last row, of what each row wrote."""
        return self.between[..., -1, :].unsqueeze(-1)

    @property
    def through(self) -> Float[Tensor, "B H 1 1"]:
        """In the last row, of what the chunk began with."""
        return self.since_start[..., -1:, :]


def fading(log_decay: Float[Tensor, "B H C"]) -> Fading:
    """What decays leave; the sums between rows are added up pair by pair: nothing cancels."""
    rows = log_decay.shape[-1]
    later = torch.ones(rows, rows, dtype=torch.bool, device=log_decay.device).tril(-1)
    between = keep(later, log_decay.unsqueeze(-1).expand(*log_decay.shape, rows)).cumsum(-2)
    return Fading(log_decay.cumsum(-1).exp().unsqueeze(-1), between.exp())


class Spoilt(NamedTuple):
    """Where the caller's rows hold a NaN or an infinity."""

    read: Bool[Tensor, "T B H"]  # the query: concerns its own row only
    written: Bool[Tensor, "T B H"]  # the others: concern all that is read later

    def rows(self, chunk: Chunk) -> Bool[Tensor, "B H C 1"]:
        """The rows of a chunk whose result is NaN."""
        own, written = (mask[chunk.rows].movedim(0, -1) for mask in self)
        return (own | (chunk.visible & written.unsqueeze(-2)).any(-1)).unsqueeze(-1)

    def weights(self, chunk: Chunk) -> Bool[Tensor, "B H 1 1"]:
        """The heads whose weights after a chunk are NaN."""
        written = self.written[chunk.rows].movedim(0, -1).unsqueeze(-1)
        return (chunk.last & written).any(-2, keepdim=True)


def without_spoilt(
    rows: Float[Tensor, "T B H *rest"],
) -> tuple[Float[Tensor, "T B H *rest"], Bool[Tensor, "T B H"]]:
    """The input with zeros for what is not finite, and the rows that held such an entry."""
    finite = rows.detach().isfinite()
    return keep(finite, rows), ~finite.flatten(3).all(-1) if rows.ndim > 3 else ~finite


def loop_over_chunks(
    step: Callable[..., tuple[Tensor, Tensor]],
    inputs: tuple[Tensor, ...],
    is_first: Bool[Tensor, "T B"],
    weights: Float[Tensor, "B H K V"],
    empty: Float[Tensor, "T B H V"],
) -> tuple[Float[Tensor, "T B H V"], Float[Tensor, "B H K V"]]:
    """Applies `step(chunk, *inputs [B, H, C, ...], weights) -> (y [B, H, C, V], weights)`.

    The first of `inputs` is the query, which is only read with.
    """
    inputs, masks = zip(*(without_spoilt(x) for x in inputs), strict=True)
    spoilt = Spoilt(masks[0], torch.stack(masks[1:]).any(0))
    outputs = []
    for chunk in chunks(is_first):
        y, weights = step(chunk, *(x[chunk.rows].movedim(0, 2) for x in inputs), weights)
        outputs.append(y.masked_fill(spoilt.rows(chunk), torch.nan).movedim(2, 0))
        weights = weights.masked_fill(spoilt.weights(chunk), torch.nan)
    return (torch.cat(outputs), weights) if outputs else (empty.clone(), weights.clone())
