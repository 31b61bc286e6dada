"""The max-pooling on CUDA tensors; the kernels are in `cuda.cu`, one for each dtype."""

from array import array
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from kernels.cuda import launch
from kernels.cuda.arguments import HEAD_SIZES
from kernels.cuda.compiler import source_file
from kernels.dispatch import requested_backend, say_once

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
TOGETHER = 4  # channels of a thread
WARPS = 8, 8  # of a block
MOST_NUMBERS = 2**31  # the kernels count them in 32 bits
_ANY_SIZE = HEAD_SIZES[0]  # the source is the same for every head size


def takes(x: Tensor) -> bool:
    """Whether there is a kernel for such pictures, channels last on a GPU, and it may run."""
    if x.dtype not in DTYPES or x.shape[1] % TOGETHER or x.numel() >= MOST_NUMBERS:
        return False
    return is_there(x.device)


def is_there(device: torch.device) -> bool:
    """Whether the kernels may run on that GPU; where they cannot, that is said once."""
    if requested_backend() not in ("auto", "cuda"):
        return False
    if problem := launch.unavailable(device):
        say_once(f"max_pool runs on PyTorch's own kernels: {problem}")
    return not problem


# A compiled graph keeps the answer, as in kernels/dispatch.py.
is_there._dynamo_marked_constant = True


def run(
    way: Literal["forward", "backward"], size: Sequence[int], tensors: Sequence[Tensor | None]
) -> None:
    """Launches one way for pictures of `size` [N, C, Y, X]; the tensors as in its struct.

    All have their channels last; None is a null address.
    """
    count, channels, height, width = size
    tensors = [tensor if tensor is None else _readable_in_fours(tensor) for tensor in tensors]
    first = tensors[0]
    assert first is not None
    if way == "forward":
        height, width = (height + 1) // 2, (width + 1) // 2
    groups = count * height * width * channels // TOGETHER
    kernel = launch.Kernel(source_file("max_pool"), f"{way}_{DTYPES[first.dtype]}", WARPS)
    threads = kernel.threads(_ANY_SIZE)
    addresses = (0 if tensor is None else tensor.data_ptr() for tensor in tensors)
    words = array("q", [*size, *addresses])
    blocks = -(-groups // threads)
    launch.run_on_device(kernel, _ANY_SIZE, blocks, threads, words, first.device)


def _readable_in_fours(tensor: Tensor) -> Tensor:
    """Itself, unless it is a view that begins somewhere between two fours."""
    if tensor.data_ptr() % (TOGETHER * tensor.element_size()) == 0:
        return tensor
    return tensor.clone(memory_format=torch.channels_last)
