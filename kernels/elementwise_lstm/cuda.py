"""The element-wise LSTM's cell on CUDA tensors; the kernels are in `cuda.cu`."""

from fastweights.kernels.cuda.kernel import Source

SOURCE = Source(
    saved={  # as on CPUs
        "z": "T B D",
        "i": "T B D",
        "f": "T B D",
        "before": "T B D",
    },
    units="D",
)
