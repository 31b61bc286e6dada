"""The image stem's max-pooling: 3 x 3 windows, 2 apart, one pixel of padding.

PyTorch's own keeps a 64-bit index of every window's winner; the C++ kernel keeps one byte. Values
and gradients are the same, down to the winner among equals (the first) and NaN (which wins).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from kernels import cpu_build, pictures
from kernels.library import LIBRARY, wants_gradient
from kernels.pictures import Picture
from kernels.signature import is_traced

SOURCE = Path(__file__).parent / "cpu.cpp"
_ANY_CHANNELS = 16, 16  # the build is the same for every number of them


def max_pool(x: Picture) -> Float[Tensor, "N C V U"]:
    """V = ceil(Y / 2), U = ceil(X / 2); any floating dtype, any device.

    The kernel takes CPU tensors whose channels come last in memory. Others, and machines without
    a compiler, get PyTorch's own.
    """
    if not has_kernel(x):
        return F.max_pool2d(x, 3, stride=2, padding=1)
    if is_traced() or wants_gradient((x,)):
        return torch.ops.fastweights.max_pool(x)[0]
    return _pool(x, keep_places=False)[0]


def has_kernel(x: Tensor) -> bool:
    """Whether `max_pool` runs its own kernel on such a tensor, which it builds if need be."""
    if not (x.is_cpu and pictures.is_channels_last(x)):
        return False
    return pictures.is_there(SOURCE, "max_pool", x.dtype, _ANY_CHANNELS)


def _library(dtype: torch.dtype) -> cpu_build.Library:
    return pictures.library(SOURCE, dtype, _ANY_CHANNELS)


def _pool(x: Picture, keep_places: bool = True) -> tuple[Tensor, Tensor]:
    y = _pooled(x)
    places = _pooled(x, torch.uint8) if keep_places else x.new_empty(0, dtype=torch.uint8)
    tensors = x, y, places if keep_places else None
    pictures.call(_library(x.dtype).forward, x.shape, tensors)
    return y, places


def _unpool(
    grad_y: Float[Tensor, "N C V U"], places: UInt8[Tensor, "N C V U"], height: int, width: int
) -> Picture:
    grad_x = _channels_last(grad_y, (height, width))
    grad_y = grad_y.contiguous(memory_format=torch.channels_last)
    tensors = grad_y, places, grad_x
    pictures.call(_library(grad_y.dtype).backward, grad_x.shape, tensors)
    return grad_x


def _channels_last(like: Tensor, size: Sequence[Any], dtype: torch.dtype | None = None) -> Tensor:
    """Uninitialised memory for pictures of another (height, width), which may be symbols."""
    return torch.empty(
        (*like.shape[:2], *size),
        dtype=dtype or like.dtype,
        device=like.device,
        memory_format=torch.channels_last,
    )


def _pooled(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Uninitialised memory for one number a window."""
    height, width = x.shape[2:]
    return _channels_last(x, ((height + 1) // 2, (width + 1) // 2), dtype)


def _setup(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.size = inputs[0].shape[2:]
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: Any, grad_y: Tensor, _: Any) -> Tensor:
    return torch.ops.fastweights.max_pool_backward(grad_y, *ctx.saved_tensors, *ctx.size)


LIBRARY.define("max_pool(Tensor x) -> (Tensor, Tensor)")
LIBRARY.define("max_pool_backward(Tensor grad, Tensor places, SymInt y, SymInt x) -> Tensor")
LIBRARY.impl("max_pool", _pool, "CPU")
LIBRARY.impl("max_pool_backward", _unpool, "CPU")
torch.library.register_fake(
    "fastweights::max_pool", lambda x: (_pooled(x), _pooled(x, torch.uint8)), lib=LIBRARY
)
torch.library.register_fake(
    "fastweights::max_pool_backward",
    lambda grad, places, y, x: _channels_last(grad, (y, x)),
    lib=LIBRARY,
)
torch.library.register_autograd(
    "fastweights::max_pool", _differentiate, setup_context=_setup, lib=LIBRARY
)

__all__ = ["has_kernel", "max_pool"]
