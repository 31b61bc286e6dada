"""Which calls the CUDA kernels can take; the others go to a slower path, with the reason."""

from collections.abc import Mapping, Sequence

import torch

from kernels.cuda.launch import unavailable


def why_not(
    device: torch.device, dtype: torch.dtype, sizes: Mapping[str, int], largest_head: int
) -> str | None:
    """Why no kernel can take such a call, in one line; None if one can. Compiles nothing.

    `sizes` by axis letter: K and V, or D, are head sizes. Inputs of other dtypes are cast before.
    """
    if device.type != "cuda":
        absent = "" if torch.cuda.is_available() else ", and torch sees no CUDA device"
        return f"the tensors are on {device}{absent}"
    if dtype != torch.float32:
        return f"the state is {dtype}, the kernels compute in torch.float32"
    for axis in "KVD":
        if not 1 <= sizes.get(axis, 1) <= largest_head:
            return f"head size {axis} = {sizes[axis]} is not in 1..{largest_head}"
    return unavailable(device)


def without_kernel(known: Mapping[str, Sequence[str]], **options: str) -> str | None:
    """The option that there is no kernel for, in one line; None if there is one for all."""
    for name, value in options.items():
        if value not in known[name]:
            have = ", ".join(map(repr, known[name]))
            return f"the CUDA kernel has {name} {have}, not {value!r}"
    return None


def refuse(operation: str, known: Mapping[str, Sequence[str]], **options: str) -> None:
    """Raises a `ValueError` for an option that the kernel does not compute."""
    if reason := without_kernel(known, **options):
        raise ValueError(f"{operation}: {reason}; use the reference backend")
