"""Which calls the CUDA kernels can take; the others go to a slower path, with the reason."""

from collections.abc import Mapping

import torch

from kernels.cuda.launch import unavailable


def why_not(
    device: torch.device, dtype: torch.dtype, sizes: Mapping[str, int], largest_head: int
) -> str | None:
    """Why no kernel can take such a call, in one line; None if one can. Compiles nothing.

    `sizes` by axis letter: K and V, or D, are head sizes. Inputs of other dtypes are cast before.
    """
    if device.type != "cuda":
        return f"the tensors are on {device}"
    if dtype != torch.float32:
        return f"the state is {dtype}, the kernels compute in torch.float32"
    for axis in "KVD":
        if not 1 <= sizes.get(axis, 1) <= largest_head:
            return f"head size {axis} = {sizes[axis]} is not in 1..{largest_head}"
    if largest_head <= 32 and sizes.get("K") != sizes.get("V"):
        return f"key size {sizes['K']} and value size {sizes['V']} differ"
    return unavailable(device)


def only_softmax(operation: str, feature_map: str) -> None:
    """Raises a `ValueError` for a feature map that the kernel does not compute."""
    if feature_map != "softmax":
        raise ValueError(
            f"{operation}: the CUDA kernel has the feature map 'softmax', not {feature_map!r}; "
            "use the reference backend"
        )
