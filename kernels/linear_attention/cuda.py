"""Linear attention on CUDA tensors; the kernels are in `cuda.cu`. Nothing needs saving."""

from fastweights.kernels.cuda.kernel import Source

SOURCE = Source()
