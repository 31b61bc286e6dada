"""Recurrences, one folder each: reference in PyTorch, C++ and CUDA."""

from fastweights.kernels.machinery.dispatch import BACKENDS, backend, requested_backend, use_backend

__all__ = ["BACKENDS", "backend", "requested_backend", "use_backend"]
