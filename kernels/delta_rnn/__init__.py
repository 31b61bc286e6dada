from kernels.delta_rnn import reference
from kernels.delta_rnn.reference import DeltaRNNState
from kernels.dispatch import Operation

delta_rnn = Operation("delta_rnn", reference.unroll)

__all__ = ["DeltaRNNState", "delta_rnn"]
