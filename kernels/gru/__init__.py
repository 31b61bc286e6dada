from fastweights.kernels.gru.fused import unroll as gru
from fastweights.kernels.gru.reference import GRUState, GRUWeights

__all__ = ["GRUState", "GRUWeights", "gru"]
