"""The Delta RNN on CUDA tensors; the kernels are in `cuda.cu`."""

from fastweights.kernels.cuda.kernel import Source

SOURCE = Source(
    saved={"error": "T B H V", "recurrent_error": "T B H V", "reading": "T B H V"},
    options={"version": ("A", "B")},
    backward_warps=(2, 8),
)
