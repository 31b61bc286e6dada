"""Linear attention with decay: W_t = a_t W_{t-1} + k_t v_t^T, y_t = W_t^T q_t.

`reference.py` defines it. Source: Yang et al. 2024; the scalar gate as in Dao & Gu 2024 (Mamba-2).
"""

from fastweights.kernels.gated_linear_attention import chunked, reference
from fastweights.kernels.gated_linear_attention.reference import step
from fastweights.kernels.linear_attention.reference import LinearAttentionState
from fastweights.kernels.machinery.operation import build_operation

gated_linear_attention = build_operation(
    "gated_linear_attention",
    reference.unroll,
    saved={},
    oblong=True,
    chunked=chunked.unroll,
)

__all__ = ["LinearAttentionState", "gated_linear_attention", "step"]
