"""Describe the machine that runs a benchmark."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import torch

from fastweights.host import code_revision, processor_name, processors
from fastweights.kernels.machinery import cpu_build


def describe(device: str = "cpu") -> dict[str, Any]:
    """Return the machine, its load, the versions of compiler, torch and this project, and the date.

    Call this before the measurements; otherwise the load includes their own.
    """
    try:
        compiler = cpu_build.compiler_version(cpu_build.compiler()).splitlines()[0]
    except cpu_build.BuildError as error:
        compiler = str(error)
    return {
        "processor": processor_name(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "cores": processors(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg(),
        "compiler": compiler,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "revision": _revision(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def _revision() -> str | None:
    """Return the commit of the code being measured; None outside a git checkout."""
    git = code_revision()
    return git and git["commit"] + " and changes" * git["is_dirty"]


def in_words(machine: Mapping[str, Any]) -> str:
    """Return the result of `describe` as one line: `processor ..., cores 2`."""
    return ", ".join(f"{name} {value}" for name, value in machine.items() if value)
