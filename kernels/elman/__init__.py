from fastweights.kernels.elman.fused import unroll as elman
from fastweights.kernels.elman.reference import ElmanState, ElmanWeights, step

__all__ = ["ElmanState", "ElmanWeights", "elman", "step"]
