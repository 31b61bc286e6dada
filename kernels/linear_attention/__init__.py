from fastweights.kernels.linear_attention import chunked, reference
from fastweights.kernels.linear_attention.normaliser import (
    NormalisedState,
    normalised_linear_attention,
    normalised_step,
)
from fastweights.kernels.linear_attention.operation import linear_attention
from fastweights.kernels.linear_attention.reference import LinearAttentionState, step

__all__ = [
    "LinearAttentionState",
    "NormalisedState",
    "chunked",
    "linear_attention",
    "normalised_linear_attention",
    "normalised_step",
    "reference",
    "step",
]
