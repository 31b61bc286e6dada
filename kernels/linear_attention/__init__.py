from kernels.linear_attention import reference
from kernels.linear_attention.reference import LinearAttentionState
from kernels.operation import build_operation

linear_attention = build_operation(
    "linear_attention",
    reference.unroll,
    saved={"final": "B H K V"},
)

__all__ = ["LinearAttentionState", "linear_attention"]
