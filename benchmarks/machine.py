"""Describe the machine that runs a benchmark."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import torch

from fastweights.host import UserError, code_revision, processor_name, processors, user_input
from fastweights.kernels.machinery import cpu_build


def describe(device: str = "cpu") -> dict[str, Any]:
    """Return the machine, its load, the versions of compiler, torch and this project, and the date.

    Call this before the measurements; otherwise the load includes their own. Raises `UserError` if
    FASTWEIGHTS_CPUS is not a number of CPUs.
    """
    with user_input():
        cores = processors()
    return {
        "processor": processor_name(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "bfloat16": _bfloat16(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "load": os.getloadavg(),
        "compiler": _compiler(),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "revision": _revision(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def _bfloat16() -> str | None:
    """Return the processor's instructions that multiply bfloat16; None without any."""
    if torch.cpu._is_amx_tile_supported():
        return "AMX"
    return "AVX512_BF16" if torch.cpu._is_avx512_bf16_supported() else None


def _compiler() -> str:
    """Return the C++ compiler's name and version, or why there is none."""
    try:
        path = cpu_build.compiler()
        lines = cpu_build.compiler_version(path).splitlines()
    except cpu_build.BuildError as error:
        return str(error)
    return lines[0] if lines else f"{path}, version unknown"


@contextmanager
def building() -> Iterator[None]:
    """Turn a `BuildError` of C++ kernels in the block into a `UserError` with the same message."""
    try:
        yield
    except cpu_build.BuildError as error:
        raise UserError(str(error)) from error


def _revision() -> str | None:
    """Return the commit of the code being measured; None outside a git checkout."""
    git = code_revision()
    return git and git["commit"] + " and changes" * git["is_dirty"]


def in_words(machine: Mapping[str, Any]) -> str:
    """Return the result of `describe` as one line: `processor ..., cores 2`."""
    return ", ".join(f"{name} {value}" for name, value in machine.items() if value)
