"""Softmax attention over a window of an episode's most recent steps: y_t = sum_j a_j v_j.

`reference.py` defines it.
Source: Vaswani et al. 2017; the window as in Dai et al. 2019 (Transformer-XL).
"""

from fastweights.kernels.attention import fused, reference
from fastweights.kernels.attention.fused import attention_positions
from fastweights.kernels.attention.fused import unroll as attention
from fastweights.kernels.attention.reference import Window, step, weights

__all__ = ["Window", "attention", "attention_positions", "fused", "reference", "step", "weights"]
