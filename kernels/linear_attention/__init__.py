"""Linear attention, the sum rule: W_t = W_{t-1} + k_t v_t^T, y_t = W_t^T q_t.

`reference.py` defines it; `normaliser.py` defines the form normalised by the sum of keys.
Source: Katharopoulos et al. 2020; Irie et al. 2021, eqs. 6-7.
"""

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
