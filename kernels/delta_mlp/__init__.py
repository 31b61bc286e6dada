from fastweights.kernels.delta_mlp.layered import side_by_side
from fastweights.kernels.delta_mlp.layered import unroll as delta_mlp
from fastweights.kernels.delta_mlp.reference import DeltaMLPState, queries, step

__all__ = ["DeltaMLPState", "delta_mlp", "queries", "side_by_side", "step"]
