"""Fast recurrences: one folder an operation, with its law in `reference.py`."""

from fastweights.kernels.machinery.dispatch import BACKENDS, backend, requested_backend, use_backend

__all__ = ["BACKENDS", "backend", "requested_backend", "use_backend"]
