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
