"""Linear attention on CUDA tensors; the kernels are in `cuda.cu`. There is nothing to save."""

from fastweights.kernels.cuda.kernel import Source

SOURCE = Source()
