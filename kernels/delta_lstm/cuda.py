"""The Delta LSTM, version D, on CUDA tensors; the kernels are in `cuda.cu`."""

from fastweights.kernels.cuda.kernel import Source

SOURCE = Source(
    saved={
        "error": "T B H 3 V",
        "recurrent_error": "T B H 3 V",
        "gates": "T B H 3 V",  # u, f, o
        "cell": "T B H V",
        "reading": "T B H V",  # softmax(y_{t-1})
    },
    options={"version": ("D",)},
    forward_warps=(3, 12),
    backward_warps=(6, 12),
)
