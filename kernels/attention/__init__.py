from fastweights.kernels.attention import fused, reference
from fastweights.kernels.attention.fused import unroll as attention
from fastweights.kernels.attention.reference import Window

__all__ = ["Window", "attention", "fused", "reference"]
