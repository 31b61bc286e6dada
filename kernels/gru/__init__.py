"""The gated recurrent unit, in PyTorch's version: h_t = (1 - u_t) * n_t + u_t * h_{t-1}.

`reference.py` defines it. Source: Cho et al. 2014.
"""

from fastweights.kernels.gru.fused import unroll as gru
from fastweights.kernels.gru.reference import GRUState, GRUWeights, gates, step

__all__ = ["GRUState", "GRUWeights", "gates", "gru", "step"]
