from kernels.mlstm.reference import MLSTMState

__all__ = ["MLSTMState"]
