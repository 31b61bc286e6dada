from kernels.dispatch import Operation
from kernels.lstm import reference
from kernels.lstm.reference import LSTMState

lstm = Operation("lstm", reference.unroll)

__all__ = ["LSTMState", "lstm"]
