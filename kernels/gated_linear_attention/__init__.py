from fastweights.kernels.gated_linear_attention import chunked, reference
from fastweights.kernels.linear_attention.reference import LinearAttentionState
from fastweights.kernels.machinery.operation import build_operation

gated_linear_attention = build_operation(
    "gated_linear_attention",
    reference.unroll,
    saved={},
    oblong=True,
    chunked=chunked.unroll,
)

__all__ = ["LinearAttentionState", "gated_linear_attention"]
