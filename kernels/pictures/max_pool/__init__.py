"""The image stem's max-pooling: 3 x 3 windows, stride 2, one pixel of padding.

PyTorch's pooling keeps a 64-bit index of every window's maximum; the C++ and CUDA kernels keep one
byte. Values and gradients are the same: the first of equal maxima wins, and NaN beats any number.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from fastweights.kernels.machinery import direct_call
from fastweights.kernels.machinery.direct_call import ANY_SIZE
from fastweights.kernels.machinery.library import wants_gradient
from fastweights.kernels.machinery.signature import is_traced
from fastweights.kernels.pictures import images as pictures
from fastweights.kernels.pictures.images import Length, Picture, Way, empty_pictures, empty_pooled
from fastweights.kernels.pictures.max_pool import cuda

SOURCE = "pictures/max_pool/cpu.cpp"
_DEVICES = "CPU", "CUDA"


def max_pool(x: Picture) -> Float[Tensor, "N C V U"]:
    """Pool x; V = ceil(Y / 2), U = ceil(X / 2). Accepts any floating dtype, on any device.

    The kernels need channels-last memory. On CUDA devices they run for float32 and bfloat16 if the
    channels of a pixel fill a multiple of sixteen bytes. Other calls, and machines without a
    compiler, use PyTorch's pooling.
    """
    if not has_kernel(x):
        return F.max_pool2d(x, 3, stride=2, padding=1)
    if is_traced() or wants_gradient((x,)):
        return _recorded(x)
    return _pool(x, keep_places=False)[0]


def has_kernel(x: Tensor) -> bool:
    """Return whether `max_pool` runs its own kernel on this tensor; build it if necessary."""
    if not (pictures.is_plain() and pictures.is_channels_last(x)):
        return False
    if x.is_cuda:
        return cuda.takes(x)
    return x.is_cpu and direct_call.is_there(SOURCE, x.dtype, ANY_SIZE)


def _on_cpu(
    way: Literal["forward", "backward"], size: Sequence[int], tensors: Sequence[Tensor | None]
) -> None:
    assert tensors[0] is not None
    library = direct_call.library(SOURCE, tensors[0].dtype, ANY_SIZE)
    direct_call.call(getattr(library, way), size, tensors)


RUN = {"cpu": _on_cpu, "cuda": cuda.run}  # by the tensors' device


def _pool(x: Picture, keep_places: bool = True) -> tuple[Tensor, Tensor]:
    x = pictures.channels_last(x)
    y, places = _results(x)
    RUN[x.device.type]("forward", x.shape, (x, y, places if keep_places else None))
    return y, places


def _unpool(
    grad_y: Float[Tensor, "N C V U"], places: UInt8[Tensor, "N C V U"], height: int, width: int
) -> Picture:
    grad_x = _empty_inputs(grad_y, height, width)
    grad_y, places = map(pictures.channels_last, (grad_y, places))
    RUN[grad_y.device.type]("backward", grad_x.shape, (grad_y, places, grad_x))
    return grad_x


def _results(x: Tensor) -> tuple[Tensor, Tensor]:
    """Allocate uninitialised results."""
    y, places = (empty_pooled(x, x.shape[1], dtype) for dtype in (x.dtype, torch.uint8))
    return y, places


def _empty_inputs(grad_y: Tensor, height: Length, width: Length) -> Tensor:
    """Allocate an uninitialised gradient of the input."""
    return empty_pictures(grad_y, grad_y.shape[1], (height, width), grad_y.dtype)


def _setup(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.size = inputs[0].shape[2:]


def _differentiate(ctx: Any, grad_y: Tensor, backward: Callable[..., Tensor]) -> Tensor:
    return backward(grad_y, *ctx.saved_tensors, *ctx.size)


_recorded = pictures.register(
    "max_pool",
    Way("(Tensor x) -> (Tensor, Tensor)", _pool, _results, _DEVICES),
    Way(
        "(Tensor grad, Tensor places, SymInt y, SymInt x) -> Tensor",
        _unpool,
        lambda grad, places, y, x: _empty_inputs(grad, y, x),
        _DEVICES,
    ),
    _setup,
    _differentiate,
)

__all__ = ["has_kernel", "max_pool"]
