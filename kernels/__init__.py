"""Recurrences, one folder each: a PyTorch reference, and kernels in C++ and CUDA."""

from fastweights.kernels.chunks import keep_where
from fastweights.kernels.fast_weights import read_memory
from fastweights.kernels.feature_maps import feature_map, identity
from fastweights.kernels.machinery.cpu_build import BuildError, compiler, compiler_version
from fastweights.kernels.machinery.dispatch import (
    BACKENDS,
    SHORTEST_CHUNKED_UNROLL,
    backend,
    check_backend,
    requested_backend,
    restoring_backend,
    use_backend,
)
from fastweights.kernels.machinery.signature import without_waiting
from fastweights.kernels.recurrence import (
    State,
    forget,
    loop_over_time,
    map_state,
    refilled,
    step_once,
    tensors_of,
)

__all__ = [
    "BACKENDS",
    "SHORTEST_CHUNKED_UNROLL",
    "BuildError",
    "State",
    "backend",
    "check_backend",
    "compiler",
    "compiler_version",
    "feature_map",
    "forget",
    "identity",
    "keep_where",
    "loop_over_time",
    "map_state",
    "read_memory",
    "refilled",
    "requested_backend",
    "restoring_backend",
    "step_once",
    "tensors_of",
    "use_backend",
    "without_waiting",
]
