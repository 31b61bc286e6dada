"""Kernels of the image stem: convolutions, pooling and residual units."""

from fastweights.kernels.pictures.pixels import as_numbers

__all__ = ["as_numbers"]
