from kernels.dispatch import Operation
from kernels.linear_attention import reference
from kernels.linear_attention.reference import LinearAttentionState

linear_attention = Operation("linear_attention", reference.unroll)

__all__ = ["LinearAttentionState", "linear_attention"]
