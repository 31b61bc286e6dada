"""A fast RNN: y_t = W_t^T q_t + R_t^T softmax(y_{t-1}), W and R written by delta rules.

`reference.py` defines it. Source: Irie et al. 2021, eq. 12 (Delta RNN).
"""

from fastweights.kernels.delta_rnn import reference
from fastweights.kernels.delta_rnn.reference import DeltaRNNState, step
from fastweights.kernels.machinery.operation import build_operation

delta_rnn = build_operation(
    "delta_rnn",
    reference.unroll,
    saved={
        "error": "T B H V",
        "recurrent_error": "T B H V",
        "recurrent_query": "T B H V",
        "output": "T B H V",
    },
    final=("state.fast_weights", "state.recurrent_fast_weights"),
    options={"version": ("A", "B")},
)

__all__ = ["DeltaRNNState", "delta_rnn", "step"]
