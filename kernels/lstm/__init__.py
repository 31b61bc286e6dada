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
