from fastweights.kernels.delta_mlp.layered import unroll as delta_mlp
from fastweights.kernels.delta_mlp.reference import DeltaMLPState

__all__ = ["DeltaMLPState", "delta_mlp"]
