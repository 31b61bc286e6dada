"""The cell of an LSTM whose units read only their own last cell: c_t = f_t c_{t-1} + i_t z_t.

`reference.py` defines it. Source: Irie et al. 2023, eqs. 17-19; Bradbury et al. 2017, eqs. 4 and 5.
"""

from fastweights.kernels.elementwise_lstm import reference
from fastweights.kernels.elementwise_lstm.reference import (
    ElementwiseState,
    ElementwiseWeights,
    gates,
    step,
)
from fastweights.kernels.machinery.operation import build_operation

elementwise_lstm = build_operation(
    "elementwise_lstm",
    reference.unroll,
    saved={  # after tanh and sigmoid; the cell before the step, after a reset
        "z": "T B D",
        "i": "T B D",
        "f": "T B D",
        "before": "T B D",
    },
    head_axes=(),
)

__all__ = ["ElementwiseState", "ElementwiseWeights", "elementwise_lstm", "gates", "step"]
