from fastweights.kernels.gru.fused import unroll as gru
from fastweights.kernels.gru.reference import GRUState, GRUWeights, gates, step

__all__ = ["GRUState", "GRUWeights", "gates", "gru", "step"]
