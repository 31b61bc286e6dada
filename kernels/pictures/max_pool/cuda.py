"""Max-pooling on CUDA tensors; `cuda.cu` has a kernel for each direction and dtype."""

import math
from array import array
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fastweights.kernels.cuda import launch
from fastweights.kernels.cuda.arguments import HEAD_SIZES
from fastweights.kernels.cuda.compiler import source_file
from fastweights.kernels.machinery.direct_call import may_run

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
TOGETHER = 16  # bytes of channels per thread
WARPS = 8, 8  # warps per block
MOST_NUMBERS = 2**31  # the kernels use 32-bit indices
_ANY_SIZE = HEAD_SIZES[0]  # the source is the same for every head size
_INPUTS = {"forward": 1, "backward": 2}  # tensors that a direction reads; it writes the rest


def takes(x: Tensor) -> bool:
    """Return whether a kernel supports these channels-last pictures on a GPU and may run."""
    return not _why_not_these(x.shape, x.dtype) and is_there(x.device)


def is_there(device: torch.device) -> bool:
    """Return whether the kernels may run on the GPU; if not, report the reason once."""
    return may_run("max_pool", "cuda", lambda: _why_not_there(device))


# A compiled graph treats the answer as a constant, as in kernels/machinery/dispatch.py.
is_there._dynamo_marked_constant = True


def run(
    way: Literal["forward", "backward"], size: Sequence[int], tensors: Sequence[Tensor | None]
) -> None:
    """Launch one direction for pictures of `size` [N, C, Y, X], with tensors in struct order.

    All tensors have their channels last; None is a null address.

    Raises:
        ValueError: there is no kernel for such pictures.
    """
    inputs, results = tensors[: _INPUTS[way]], tensors[_INPUTS[way] :]
    inputs = [_aligned(tensor) for tensor in inputs if tensor is not None]
    dtype, device = inputs[0].dtype, inputs[0].device
    if problem := _why_not_these(size, dtype):
        raise ValueError(f"max_pool: {problem}; use the reference backend")
    count, channels, height, width = size
    windows = count * -(-height // 2) * -(-width // 2)
    kernel = _kernel(way, dtype)
    threads = kernel.threads(_ANY_SIZE)
    blocks = -(-windows * (channels // _channels(dtype)) // threads)
    if blocks == 0:
        return
    addresses = (0 if each is None else each.data_ptr() for each in (*inputs, *results))
    words = array("q", [*size, *addresses])
    launch.run_on_device(kernel, _ANY_SIZE, blocks, threads, words, device)


def _why_not_these(size: Sequence[int], dtype: torch.dtype) -> str:
    """Return why there is no kernel for such pictures [N, C, Y, X]; "" if there is one."""
    if dtype not in DTYPES:
        return f"the kernels compute in {' and '.join(map(str, DTYPES))}, not in {dtype}"
    if size[1] % _channels(dtype):
        return f"{size[1]} channels are not a multiple of {_channels(dtype)}"
    if math.prod(size) >= MOST_NUMBERS:
        return f"the pictures have {math.prod(size):,} numbers, not fewer than {MOST_NUMBERS:,}"
    return ""


def _why_not_there(device: torch.device) -> str:
    """Return why the kernels cannot run on the GPU; "" if they can."""
    all_of_them = tuple(_kernel(way, dtype) for way in _INPUTS for dtype in DTYPES)
    return launch.unavailable(device) or launch.why_not_loaded(all_of_them, _ANY_SIZE, device) or ""


def _kernel(way: str, dtype: torch.dtype) -> launch.Kernel:
    return launch.Kernel(source_file("pictures/max_pool"), f"{way}_{DTYPES[dtype]}", WARPS)


def _channels(dtype: torch.dtype) -> int:
    """Return the number of channels per thread."""
    return TOGETHER // dtype.itemsize


def _aligned(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy if its memory is not aligned for a thread's reads."""
    if tensor.data_ptr() % TOGETHER == 0:
        return tensor
    return tensor.clone(memory_format=torch.channels_last)
