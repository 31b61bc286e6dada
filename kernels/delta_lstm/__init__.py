"""A fast LSTM: c_t = f * c_{t-1} + (1 - f) * u, with six matrices written by delta rules.

`reference.py` defines it. Source: Irie et al. 2021, appendix A.2 (Delta LSTM).
"""

from fastweights.kernels.delta_lstm import reference
from fastweights.kernels.delta_lstm.reference import DeltaLSTMState, step
from fastweights.kernels.machinery.operation import build_operation

delta_lstm = build_operation(
    "delta_lstm",
    reference.unroll,
    saved={
        "error": "T B H 3 V",
        "recurrent_error": "T B H 3 V",
        "recurrent_query": "T B H V",
        "gates": "T B H 3 V",
        "cell_before": "T B H V",
    },
    final=("state.fast_weights", "state.recurrent_fast_weights"),
    options={"version": ("A", "B", "C", "D")},
)

__all__ = ["DeltaLSTMState", "delta_lstm", "step"]
