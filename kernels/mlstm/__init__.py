from fastweights.kernels.mlstm.gated import unroll as mlstm
from fastweights.kernels.mlstm.reference import MLSTMState, step

__all__ = ["MLSTMState", "mlstm", "step"]
