"""A lower bound on the memory needed to train a network, and the memory of its device."""

from pathlib import Path

import torch
from torch import nn

from fastweights.cores import count_parameters
from fastweights.host import memory_bytes

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_FLOAT32 = 4  # bytes
_COPIES = 3  # copies of each parameter: itself, its gradient, the optimiser's average


def check_memory(network: nn.Module, device: torch.device) -> None:
    """Raise a one-line `ValueError` if training `network` needs more memory than `device` has.

    `network`: on the meta device, so that nothing has been allocated yet.
    """
    parameters = count_parameters(network)
    needed, there = _COPIES * _FLOAT32 * parameters, memory_of(device)
    if there is not None and needed > there:
        raise ValueError(
            f"training a network of {parameters / 1e6:,.0f} M parameters needs at least "
            f"{needed / 1e9:,.0f} GB of memory, and {device} has {there / 1e9:,.0f} GB: choose a "
            "smaller core (--core-width, --core-layers, --core-feedforward)"
        )


def memory_of(device: torch.device) -> int | None:
    """Return the bytes of memory that a process can use on `device`; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    limits = [memory_bytes(), *map(_limit, _CGROUPS)]
    return min(filter(None, limits), default=None)


def _limit(file: str) -> int | None:
    """Return a container's memory limit; None without a limit."""
    try:
        text = Path(file).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
