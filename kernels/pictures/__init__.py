"""CPU kernels of the image stem: convolutions, pooling, residual units."""

from fastweights.kernels.pictures.images import as_numbers

__all__ = ["as_numbers"]
