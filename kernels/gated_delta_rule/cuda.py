"""The gated delta rule on CUDA tensors; the kernels are in `cuda.cu`."""

from fastweights.kernels.cuda.kernel import Source

SOURCE = Source(saved={"error": "T B H V"})
