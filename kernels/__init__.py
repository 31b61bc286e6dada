"""Recurrences, one folder each: reference in PyTorch, C++ and CUDA."""

from fastweights.kernels.machinery.cpu_build import BuildError, compiler, compiler_version
from fastweights.kernels.machinery.dispatch import (
    BACKENDS,
    SHORTEST_CHUNKED_UNROLL,
    backend,
    check_backend,
    requested_backend,
    use_backend,
)
from fastweights.kernels.machinery.signature import without_waiting

__all__ = [
    "BACKENDS",
    "SHORTEST_CHUNKED_UNROLL",
    "BuildError",
    "backend",
    "check_backend",
    "compiler",
    "compiler_version",
    "requested_backend",
    "use_backend",
    "without_waiting",
]
