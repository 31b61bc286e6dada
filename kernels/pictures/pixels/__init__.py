"""Conversion of pixels to the dtype and memory layout of a convolution.

Frames arrive with one plane per channel, and convolutions are fastest with channels last. PyTorch
first reorders the bytes and then converts them; the C++ kernel does both at once.
"""

import torch
from jaxtyping import Shaped
from torch import Tensor

from fastweights.kernels.machinery import direct_call
from fastweights.kernels.machinery.direct_call import ANY_SIZE
from fastweights.kernels.machinery.signature import is_traced
from fastweights.kernels.pictures.images import Picture, is_pixels

SOURCE = "pictures/pixels/cpu.cpp"


def as_numbers(x: Shaped[Tensor, "N C Y X"], weight: Tensor) -> Picture:
    """Return pixels in the convolution's dtype and layout, and floating-point tensors unchanged.

    The kernel runs on CPUs for contiguous pixels and channels-last weights. Other calls, and
    machines without a compiler, use PyTorch's operations, with the same result.
    """
    if not is_pixels(x):
        return x
    dtype = _dtype(x, weight)
    if has_kernel(x, weight):
        layout = torch.channels_last
        numbers = torch.empty(x.shape, dtype=dtype, device=x.device, memory_format=layout)
        library = direct_call.library(SOURCE, dtype, ANY_SIZE)
        sizes = x.shape[0], x.shape[1], x.shape[2] * x.shape[3]
        direct_call.call(library.forward, sizes, (x, numbers))
        return numbers
    layout = torch.channels_last if _is_channels_last(weight) else torch.contiguous_format
    # Reordering bytes is twice as fast as reordering numbers, and PyTorch converts contiguous data
    # with vector instructions.
    return x.contiguous(memory_format=layout).to(dtype)


def has_kernel(x: Tensor, weight: Tensor) -> bool:
    """Return whether `as_numbers` runs its own kernel on `x`; build it if necessary."""
    if is_traced() or not (is_pixels(x) and x.is_cpu and x.is_contiguous() and x.numel()):
        return False
    return _is_channels_last(weight) and direct_call.is_there(SOURCE, _dtype(x, weight), ANY_SIZE)


def _dtype(x: Tensor, weight: Tensor) -> torch.dtype:
    """Return the dtype in which a convolution of `x` computes."""
    kind = x.device.type
    autocast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    if autocast and weight.dtype is not torch.float64:  # autocast does not change float64
        return torch.get_autocast_dtype(kind)
    return weight.dtype


def _is_channels_last(weight: Tensor) -> bool:
    return weight.is_contiguous(memory_format=torch.channels_last)
