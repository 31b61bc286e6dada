"""The LSTM: c_t = f_t * c_{t-1} + i_t * g_t, h_t = o_t * tanh(c_t).

`reference.py` defines it. Source: Hochreiter & Schmidhuber 1997; Gers et al. 2000.
"""

from fastweights.kernels.lstm import fused, reference
from fastweights.kernels.lstm.reference import LSTMState, gates, step
from fastweights.kernels.machinery.operation import build_operation

lstm = build_operation(
    "lstm",
    reference.unroll,
    saved={
        "gates": "T B 4*D",
        "hidden_before": "T B D",
        "cell_before": "T B D",
        "cell": "T B D",
    },
    head_axes=(),
    on_cuda=fused.unroll,
)

__all__ = ["LSTMState", "gates", "lstm", "step"]
