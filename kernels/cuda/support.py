"""Which calls the CUDA kernels support. Other calls use a slower path, and the reason is logged."""

import math
from collections.abc import Mapping, Sequence

import torch

from fastweights.kernels.cuda.arguments import HEAD_SIZES
from fastweights.kernels.cuda.launch import unavailable
from fastweights.kernels.machinery.request import Request

MOST_ROWS = 2**31 // 3  # T * B * H: kernels count up to three times as many rows in an int


def why_not(request: Request, any_size: bool = False) -> str | None:
    """Return why no kernel can run such a call, in one line; None if one can. Compiles nothing."""
    if request.device.type != "cuda":
        absent = "" if torch.cuda.is_available() else ", and torch sees no CUDA device"
        return f"the tensors are on {request.device}{absent}"
    if request.dtype != torch.float32:
        return f"the state is {request.dtype}, the kernels compute in torch.float32"
    for axis in "" if any_size else "KVD":
        size = request.sizes.get(axis, 1)
        if not 1 <= size <= HEAD_SIZES[-1]:
            return f"head size {axis} = {size} is not in 1..{HEAD_SIZES[-1]}"
    rows = math.prod(request.sizes.get(axis, 1) for axis in "TBH")
    if rows > MOST_ROWS:
        return f"T * B * H = {rows:,} is more than {MOST_ROWS:,}"
    return unavailable(request.device)


def without_kernel(known: Mapping[str, Sequence[str]], **options: str) -> str | None:
    """Return a line about the first option value that has no kernel; None if all have one."""
    for name, value in options.items():
        if value not in known[name]:
            have = ", ".join(map(repr, known[name]))
            return f"the CUDA kernel has {name} {have}, not {value!r}"
    return None


def refuse(operation: str, known: Mapping[str, Sequence[str]], **options: str) -> None:
    """Raise a `ValueError` for an option value that has no kernel."""
    if reason := without_kernel(known, **options):
        raise ValueError(f"{operation}: {reason}; use the reference backend")
