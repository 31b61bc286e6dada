from kernels.attention import fused, reference
from kernels.attention.fused import unroll as attention
from kernels.attention.reference import Window

__all__ = ["Window", "attention", "fused", "reference"]
