"""The Elman network in PyTorch's own kernel; `segments.py` handles resets."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.elman import reference
from fastweights.kernels.elman.reference import ElmanState, ElmanWeights
from fastweights.kernels.machinery.composed import composed
from fastweights.kernels.segments import by_pytorch


@composed("elman")
def unroll(
    x: Float[Tensor, "T B E"],
    is_first: Bool[Tensor, "T B"],
    state: ElmanState,
    weights: ElmanWeights,
) -> tuple[Float[Tensor, "T B D"], ElmanState]:
    """Unroll; equals `reference.unroll`."""
    return by_pytorch(torch.rnn_tanh, reference.unroll, x, is_first, state, weights)
