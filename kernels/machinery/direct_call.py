"""C++ kernels that are not recurrences: checks of whether one can run here, and calls."""

import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from fastweights.kernels.machinery import cpu_build, cpu_call
from fastweights.kernels.machinery.dispatch import requested_backend, say_once

SCALARS = cpu_call.SCALARS | {torch.bfloat16: "bfloat16"}
ANY_SIZE = 16, 16  # for a kernel whose build does not depend on sizes


def library(source: str, dtype: torch.dtype, lanes: cpu_build.Lanes) -> cpu_build.Library:
    """Return the kernel, and build it if necessary; raise `BuildError` on failure.

    `source`, a path below `kernels/`, is a string because compiled graphs treat it as a constant.
    """
    return cpu_build.library(_path(source), SCALARS[dtype], lanes)


@cache
def _path(source: str) -> Path:
    return cpu_build.KERNELS / source


def is_there(source: str, dtype: torch.dtype, lanes: cpu_build.Lanes) -> bool:
    """Return whether the kernel may run and can be built; if not, report the reason once."""
    if dtype not in SCALARS:
        return False
    return may_run(source.split("/")[-2], "cpu", lambda: why_not(source, dtype, lanes))


# A compiled graph treats the answer as a constant, as in kernels/machinery/dispatch.py.
is_there._dynamo_marked_constant = True


def may_run(name: str, backend: str, why_not: Callable[[], str]) -> bool:
    """Return whether the backend is selected and `why_not()` is ""; if not, log why, once."""
    if requested_backend() not in ("auto", backend):
        return False
    if problem := why_not():
        say_once(f"{name} runs on PyTorch's own kernels: {problem}")
    return not problem


@cache
def why_not(source: str, dtype: torch.dtype, lanes: cpu_build.Lanes) -> str:
    """Return why the kernel cannot be built here; "" if it can. The build is tried only once."""
    try:
        library(source, dtype, lanes)
    except (cpu_build.BuildError, OSError) as error:
        return str(error)
    return ""


def call(
    function: Callable[[bytes, bytes], None], sizes: Sequence[int], tensors: Sequence[Tensor | None]
) -> None:
    """Call with sizes, torch's number of threads and addresses; None becomes a null pointer."""
    layout = struct.pack(f"{len(sizes) + 1}q", *sizes, torch.get_num_threads())
    addresses = (0 if tensor is None else tensor.data_ptr() for tensor in tensors)
    function(layout, struct.pack(f"{len(tensors)}q", *addresses))
