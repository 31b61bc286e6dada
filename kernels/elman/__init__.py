"""The simple recurrent network: h_t = tanh(W x_t + b + U h_{t-1} + c).

`reference.py` defines it. Source: Elman 1990.
"""

from fastweights.kernels.elman.fused import unroll as elman
from fastweights.kernels.elman.reference import ElmanState, ElmanWeights, step

__all__ = ["ElmanState", "ElmanWeights", "elman", "step"]
