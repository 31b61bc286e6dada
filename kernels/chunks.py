"""Parts shared by the chunked backends: chunks of the time axis, and masks across resets.

Inside a chunk, a row sees its own segment (the rows between two resets) up to itself. Unless a
reset lies between, it also sees the weights at the start of the chunk. Masks are applied with
`torch.where`: a NaN from an old episode reaches neither a new row nor its gradient.

Matrix products over a chunk include entries that a mask has set to zero, and 0 * NaN is NaN.
Therefore non-finite entries are replaced by zeros before the products. Every result that depends on
them (the rest of the segment) is set to NaN afterwards, and no gradient flows back through it.
There is no guard against finite inputs so large that a product overflows.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

CHUNK = 32
FORGETS = -1e4  # a log_decay whose exponential is zero in any precision


class Chunk(NamedTuple):
    """The rows of a chunk, and the masks of what each row sees."""

    rows: slice
    visible: Bool[Tensor, "B 1 C C"]  # row i sees row j <= i
    before: Bool[Tensor, "B 1 C C"]  # row i sees row j < i
    live: Bool[Tensor, "B 1 C 1"]  # row i sees the weights at the chunk's start
    last: Bool[Tensor, "B 1 C 1"]  # row i is in the chunk's last segment, which may continue
    carries: Bool[Tensor, "B 1 1 1"]  # the weights at the chunk's start survive to its end


def chunks(is_first: Bool[Tensor, "T B"]) -> Iterator[Chunk]:
    """Yield the chunks of an unroll, in order."""
    segments = is_first.t().cumsum(-1)  # segment 0 continues the initial state
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


def keep_where(mask: Tensor, values: Tensor) -> Tensor:
    """Return `values` where the mask is true and zero elsewhere; the same for gradients."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def read_live(
    live: Bool[Tensor, "B 1 C 1"],
    queries: Float[Tensor, "B H C K"],
    weights: Float[Tensor, "B H K V"],
) -> Float[Tensor, "B H C V"]:
    """Return W^T q for rows that see W and zero for the others; the same for gradients."""
    return keep_where(live, keep_where(live, queries) @ weights)


class Fading(NamedTuple):
    """Cumulative products of the decays in a chunk."""

    since_start: Float[Tensor, "B H C 1"]  # from the chunk's start to row i
    between: Float[Tensor, "B H C C"]  # from row j <= i to row i; 1 above the diagonal

    @property
    def to_end(self) -> Float[Tensor, "B H C 1"]:
        """The decay from each row to the last row."""
        return self.between[..., -1, :].unsqueeze(-1)

    @property
    def through(self) -> Float[Tensor, "B H 1 1"]:
        """The decay from the chunk's start to the last row."""
        return self.since_start[..., -1:, :]


def fading(log_decay: Float[Tensor, "B H C"]) -> Fading:
    """Return the decays. Each pair of rows has its own sum of logarithms, to avoid cancellation."""
    rows = log_decay.shape[-1]
    later = torch.ones(rows, rows, dtype=torch.bool, device=log_decay.device).tril(-1)
    between = keep_where(later, log_decay.unsqueeze(-1).expand(*log_decay.shape, rows)).cumsum(-2)
    return Fading(log_decay.cumsum(-1).exp().unsqueeze(-1), between.exp())


def finite_if_forgetting(log_decay: Float[Tensor, "T B H"]) -> Float[Tensor, "T B H"]:
    """Clamp at `FORGETS`: -inf is valid and must not give NaN. Gradients are zero where clamped."""
    return log_decay.clamp(min=FORGETS)


class Spoilt(NamedTuple):
    """Input rows that contain a NaN or an infinity."""

    read: Bool[Tensor, "T B H"]  # in the query: affects its own row only
    written: Bool[Tensor, "T B H"]  # in other inputs: also affects all later rows of the segment

    def rows(self, chunk: Chunk) -> Bool[Tensor, "B H C 1"]:
        """Return the rows of a chunk whose result is NaN."""
        own, written = (mask[chunk.rows].movedim(0, -1) for mask in self)
        return (own | (chunk.visible & written.unsqueeze(-2)).any(-1)).unsqueeze(-1)

    def weights(self, chunk: Chunk) -> Bool[Tensor, "B H 1 1"]:
        """Return the heads whose weights after a chunk are NaN."""
        written = self.written[chunk.rows].movedim(0, -1).unsqueeze(-1)
        return (chunk.last & written).any(-2, keepdim=True)


def without_spoilt(
    rows: Float[Tensor, "T B H *rest"],
) -> tuple[Float[Tensor, "T B H *rest"], Bool[Tensor, "T B H"]]:
    """Return the input with non-finite entries set to zero, and a mask of the rows affected."""
    finite = rows.detach().isfinite()
    return keep_where(finite, rows), ~finite.flatten(3).all(-1) if rows.ndim > 3 else ~finite


def loop_over_chunks(
    step: Callable[..., tuple[Tensor, Tensor]],
    inputs: tuple[Tensor, ...],
    is_first: Bool[Tensor, "T B"],
    weights: Float[Tensor, "B H K V"],
    empty: Float[Tensor, "T B H V"],
) -> tuple[Float[Tensor, "T B H V"], Float[Tensor, "B H K V"]]:
    """Apply `step(chunk, *inputs [B, H, C, ...], weights) -> (y [B, H, C, V], weights)`.

    The first of `inputs` is the query, which only reads the memory.
    """
    inputs, masks = zip(*(without_spoilt(x) for x in inputs), strict=True)
    spoilt = Spoilt(masks[0], torch.stack(masks[1:]).any(0))
    outputs = []
    for chunk in chunks(is_first):
        y, weights = step(chunk, *(x[chunk.rows].movedim(0, 2) for x in inputs), weights)
        outputs.append(y.masked_fill(spoilt.rows(chunk), torch.nan).movedim(2, 0))
        weights = weights.masked_fill(spoilt.weights(chunk), torch.nan)
    return (torch.cat(outputs), weights) if outputs else (empty.clone(), weights.clone())
