"""CPU kernels of the image stem: convolutions, pooling, residual units."""
