"""Windows of an episode's last inputs, concatenated, for causal convolutions."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels import keep_where


def windows(
    x: Float[Tensor, "T B D"], history: Float[Tensor, "B M D"], is_first: Bool[Tensor, "T B"]
) -> tuple[Float[Tensor, "T B N"], Float[Tensor, "B M D"]]:
    """Concatenate each row with the M inputs before it, the oldest first.

    Inputs from before an episode's first row are zero.

    Args:
        x: inputs.
        history: the M inputs before row 0, the newest last.
        is_first: where an episode begins.

    Returns:
        Rows of N = (M + 1) D numbers, and the history after the last row.
    """
    length, size = len(x), history.shape[1]
    rows = torch.cat([history.movedim(1, 0), x])
    episode = is_first.cumsum(0)
    episode = torch.cat([episode.new_zeros(size, x.shape[1]), episode])
    taps = []
    for begin in range(size + 1):
        same = episode[begin : begin + length] == episode[size:]
        taps.append(keep_where(same.unsqueeze(-1), rows[begin : begin + length]))
    last = keep_where((episode[length:] == episode[-1:]).unsqueeze(-1), rows[length:])
    return torch.cat(taps, -1), last.movedim(0, 1)


def window(
    x: Float[Tensor, "B D"], history: Float[Tensor, "B M D"]
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B M D"]]:
    """Return one row of `windows`, and the history after it."""
    rows = torch.cat([history, x.unsqueeze(1)], 1)
    return rows.flatten(1), rows[:, 1:]
