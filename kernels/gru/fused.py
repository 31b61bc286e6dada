"""The GRU in PyTorch's own kernel; `segments.py` handles resets."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.gru import reference
from fastweights.kernels.gru.reference import GRUState, GRUWeights
from fastweights.kernels.machinery.composed import composed
from fastweights.kernels.segments import by_pytorch


@composed("gru")
def unroll(
    x: Float[Tensor, "T B E"],
    is_first: Bool[Tensor, "T B"],
    state: GRUState,
    weights: GRUWeights,
) -> tuple[Float[Tensor, "T B D"], GRUState]:
    """Unroll; equals `reference.unroll`."""
    return by_pytorch(torch.gru, reference.unroll, x, is_first, state, weights)
