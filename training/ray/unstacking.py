"""Pictures in stacks, as few bytes as hold them: each stack's newest picture, where that is enough.

A stack of C pictures at row t shares C - 1 with the stack before it, unless an episode began there.
So row 0 goes whole; of later rows the newest picture, and the C - 1 older ones where they are not
those of the row before. What is compared is the pictures themselves: nothing is assumed of how an
environment resets, and the result is the same to the bit. Whole stacks of any kind still fit, at
their own size.

No library does this. Without it Ray would carry 3.5 times the bytes between machines; on one
machine both take the same time (docs/design/ray.md).
"""

from typing import NamedTuple

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor


class Unstacked(NamedTuple):
    """Stacks [T+1, B, C, H, W] taken apart."""

    first: UInt8[Tensor, "B C H W"]  # row 0
    newest: UInt8[Tensor, "T B H W"]  # of rows 1 to T
    breaks: Int64[Tensor, " N"]  # t * B + b, rising: row t + 1 of stream b does not follow on
    older: UInt8[Tensor, "N C-1 H W"]  # there


def unstack(frame: UInt8[Tensor, "T+1 B C H W"]) -> Unstacked:
    """On the frames' device."""
    follows_on = (frame[1:, :, :-1] == frame[:-1, :, 1:]).flatten(2).all(-1)
    breaks = (~follows_on).flatten().nonzero().squeeze(1)
    older = frame[1:, :, :-1].flatten(0, 1)[breaks] if len(breaks) else frame[0, :0, :-1]
    newest = frame[1:, :, -1].contiguous()
    return Unstacked(frame[0].contiguous(), newest, breaks, older.contiguous())


def restack(parts: Unstacked) -> UInt8[Tensor, "T+1 B C H W"]:
    """The inverse of `unstack`; the shapes must be as it says, the breaks rising and below T B."""
    length, streams = parts.newest.shape[:2]
    frame = torch.empty(length + 1, *parts.first.shape, dtype=torch.uint8)
    frame[0] = parts.first
    frame[1:, :, -1] = parts.newest
    counts = torch.bincount(parts.breaks // streams, minlength=length).tolist()
    columns, older = (parts.breaks % streams).split(counts), parts.older.split(counts)
    for row in range(length):
        frame[row + 1, :, :-1] = frame[row, :, 1:]
        if counts[row]:
            frame[row + 1, columns[row], :-1] = older[row]
    return frame
