"""The LSTM by PyTorch's own kernel (cuDNN's on a GPU), one call for each stretch without a reset.

The kernel multiplies its input by weights. Here these are the identity, because z is already the
gates' input; a product with ones and zeros is exact.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.lstm import reference
from fastweights.kernels.lstm.reference import LSTMState
from fastweights.kernels.machinery.signature import may_wait
from fastweights.kernels.segments import one_layer, unroll_by_segments


def unroll(
    z: Float[Tensor, "T B D4"],
    is_first: Bool[Tensor, "T B"],
    state: LSTMState,
    hidden_weights: Float[Tensor, "D4 D"],
) -> tuple[Float[Tensor, "T B D"], LSTMState]:
    """Unroll; equals `reference.unroll`, which runs where the host must not wait.

    Differentiable once.
    """
    if z.numel() == 0 or not may_wait(z):
        return reference.unroll(z, is_first, state, hidden_weights)
    weights = [torch.eye(z.shape[-1], dtype=z.dtype, device=z.device), hidden_weights]

    def whole(rows: Tensor, before: LSTMState) -> tuple[Tensor, LSTMState]:
        states = [part[None] for part in before]  # a layer's
        y, hidden, cell = one_layer(torch.lstm, rows, states, weights, has_biases=False)
        return y, LSTMState(hidden[0], cell[0])

    return unroll_by_segments(whole, z, is_first, state)
