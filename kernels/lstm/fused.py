"""The LSTM by PyTorch's own kernel, which on a GPU is cuDNN's: one call where nothing is forgotten.

That kernel knows no forgetting, so an unroll is cut at the rows where any stream forgets; to find
them the host waits for `is_first` once. It multiplies its input by weights, which are the identity
here: z is the gates' input already, and a product with ones and zeros is exact.
"""

from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from kernels.lstm import reference
from kernels.lstm.reference import LSTMState
from kernels.recurrence import forget


def unroll(
    z: Float[Tensor, "T B D4"],
    is_first: Bool[Tensor, "T B"],
    state: LSTMState,
    hidden_weights: Float[Tensor, "D4 D"],
) -> tuple[Float[Tensor, "T B D"], LSTMState]:
    """As `reference.unroll`; differentiable once. Where the host may not wait, it is that."""
    if z.numel() == 0 or _may_not_wait(z):
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
    with torch.backends.cudnn.flags(allow_tf32=False):
        y, hidden, cell = torch.lstm(z, before, weights, False, 1, 0.0, learning, False, False)
    return y, LSTMState(hidden[0], cell[0])


def _may_not_wait(z: Tensor) -> bool:
    """While a graph is traced or captured, nobody knows yet what is_first holds."""
    if torch.compiler.is_compiling():
        return True
    return z.is_cuda and torch.cuda.is_current_stream_capturing()
