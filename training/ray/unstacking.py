"""Compact form of frame stacks: only each stack's newest picture, where possible.

A stack of C pictures at row t shares C - 1 of them with the previous stack, unless an episode began
there. So row 0 is sent whole. Of later rows only the newest picture is sent, plus the C - 1 older
ones if they differ from those of the row before. The pictures themselves are compared: nothing is
assumed about an environment's resets, and the result is bit-identical. Stacks of any kind work, in
the worst case at full size.

No library does this. Without it, Ray would transfer 3.5 times as many bytes between machines. On
one machine, both ways take the same time (docs/design/ray.md).
"""

from typing import NamedTuple

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor


class Unstacked(NamedTuple):
    """Stacks [T+1, B, C, H, W] in compact form."""

    first: UInt8[Tensor, "B C H W"]  # row 0
    newest: UInt8[Tensor, "T B H W"]  # of rows 1 to T
    breaks: Int64[Tensor, " N"]  # t * B + b, ascending: row t + 1 of stream b is no shift of row t
    older: UInt8[Tensor, "N C-1 H W"]  # older pictures at the breaks


def unstack(frame: UInt8[Tensor, "T+1 B C H W"]) -> Unstacked:
    """Return the compact form of stacks, on their device."""
    follows_on = (frame[1:, :, :-1] == frame[:-1, :, 1:]).flatten(2).all(-1)
    breaks = (~follows_on).flatten().nonzero().squeeze(1)
    older = frame[1:, :, :-1].flatten(0, 1)[breaks] if len(breaks) else frame[0, :0, :-1]
    newest = frame[1:, :, -1].contiguous()
    return Unstacked(frame[0].contiguous(), newest, breaks, older.contiguous())


def restack(parts: Unstacked) -> UInt8[Tensor, "T+1 B C H W"]:
    """Return the stacks of a compact form; breaks must be ascending and below T B."""
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
