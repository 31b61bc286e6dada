from kernels.mlstm.gated import unroll as mlstm
from kernels.mlstm.reference import MLSTMState

__all__ = ["MLSTMState", "mlstm"]
