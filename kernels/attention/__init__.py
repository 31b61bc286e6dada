from fastweights.kernels.attention import fused, reference
from fastweights.kernels.attention.fused import attention_positions
from fastweights.kernels.attention.fused import unroll as attention
from fastweights.kernels.attention.reference import Window, step, weights

__all__ = ["Window", "attention", "attention_positions", "fused", "reference", "step", "weights"]
