"""CPU kernels of the image stem: convolutions, pooling, residual units."""

from fastweights.kernels.pictures.pixels import as_numbers

__all__ = ["as_numbers"]
