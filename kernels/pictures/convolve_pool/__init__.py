"""The start of each stage of the image stem: a convolution with 3 x 3 taps, then `max_pool`.

The pooling's input is four times as large as its output and is never written to memory. The stem's
first stage reads one-byte pixels (`pixels.cpp`), later stages floating-point numbers (`cpu.cpp`,
with a third of the multiplications; see kernels/include/winograd.h). Results differ from PyTorch's
by about 1e-6 of the largest input of a 3 x 3 output tile. An infinity there makes the tile NaN.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from fastweights.kernels.machinery import cpu_build, direct_call
from fastweights.kernels.machinery.library import wants_gradient
from fastweights.kernels.machinery.signature import is_traced
from fastweights.kernels.pictures import images as pictures
from fastweights.kernels.pictures.images import (
    FULL_REGISTERS,
    Bias,
    Picture,
    Way,
    Weight,
    empty_pooled,
    is_pixels,
)
from fastweights.kernels.pictures.max_pool import max_pool
from fastweights.kernels.pictures.pixels import as_numbers

MOST_CHANNELS_OF_PIXELS = 16
Pixels = UInt8[Tensor, "N C Y X"]
Pooled = Float[Tensor, "N D V U"]
Places = UInt8[Tensor, "N D V U"]
WayBack = Callable[..., tuple[Tensor, ...]]


def convolve_pool(x: Picture | Pixels, weight: Weight, bias: Bias) -> Pooled:
    """Convolve and pool; height and width are halved, rounded up. Pixels have values 0 to 255.

    Accepts any floating dtype or uint8, on any device. The kernels run on CPUs for float32 and
    float64 weights whose number of output channels is a multiple of 16. The input must be
    floating-point, channels last and with a multiple of 16 channels, or contiguous pixels with up
    to 16 channels. Other calls, and machines without a compiler, use PyTorch's convolution.
    """
    inputs = (x, weight, bias)
    pictures.check(*inputs)
    if not has_kernel(*inputs):
        return max_pool(F.conv2d(as_numbers(x, weight), weight, bias, padding=1))
    if is_traced() or wants_gradient(inputs):
        recorded = _recorded_of_pixels if is_pixels(x) else _recorded
        return recorded(*inputs)
    return _forward(*inputs, keep=False)[0]


def has_kernel(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Return whether `convolve_pool` runs its own kernel on such tensors; build it if necessary."""
    if not (pictures.takes(weight, bias) and x.is_cpu and weight.shape[0] % FULL_REGISTERS == 0):
        return False
    if is_pixels(x):
        fits = x.numel() > 0 and x.is_contiguous() and x.shape[1] <= MOST_CHANNELS_OF_PIXELS
    else:
        fits = x.dtype is weight.dtype and pictures.is_channels_last(x)
        fits = fits and x.shape[1] % FULL_REGISTERS == 0
    return fits and direct_call.is_there(_source(x), weight.dtype, _channels(weight))


def _source(x: Tensor) -> str:
    return "pictures/convolve_pool/pixels.cpp" if is_pixels(x) else "pictures/convolve_pool/cpu.cpp"


def _channels(weight: Tensor) -> tuple[int, int]:
    return weight.shape[1], weight.shape[0]


def _library(x: Tensor, weight: Tensor) -> cpu_build.Library:
    return direct_call.library(_source(x), weight.dtype, _channels(weight))


def _forward(
    x: Picture | Pixels, weight: Weight, bias: Bias, keep: bool = True
) -> tuple[Pooled, Places]:
    """Return y and, with `keep`, the position of each maximum within its window."""
    x = x.contiguous() if is_pixels(x) else pictures.channels_last(x)
    y, places = _results(x, weight)
    tensors = x, *pictures.forward(weight, bias), y, places if keep else None
    direct_call.call(_library(x, weight).forward, pictures.sizes(x), tensors)
    return y, places


def _results(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Allocate uninitialised results."""
    y, places = (empty_pooled(x, weight.shape[0], each) for each in (weight.dtype, torch.uint8))
    return y, places


def _backward(grad_y: Pooled, places: Places, x: Picture, weight: Weight) -> tuple[Tensor, ...]:
    grad_y, places, x = map(pictures.channels_last, (grad_y, places, x))
    grad_x, (taps, bias) = torch.empty_like(x), pictures.empty_gradients(weight)
    tensors = (grad_y, places, x, pictures.turned_taps(weight), grad_x, taps, bias)
    direct_call.call(_library(x, weight).backward, pictures.sizes(x), tensors)
    return grad_x, pictures.like_weight(taps), bias


def _backward_of_pixels(
    grad_y: Pooled, places: Places, x: Pixels, weight: Weight
) -> tuple[Tensor, ...]:
    grad_y, places = map(pictures.channels_last, (grad_y, places))
    taps, bias = pictures.empty_gradients(weight)
    tensors = grad_y, places, x.contiguous(), taps, bias
    direct_call.call(_library(x, weight).backward, pictures.sizes(x), tensors)
    return pictures.like_weight(taps), bias


def _setup(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(output[1], x, weight)


def _differentiate(ctx: Any, grad_y: Tensor, backward: WayBack) -> tuple[Tensor, ...]:
    return backward(grad_y, *ctx.saved_tensors)


def _differentiate_pixels(ctx: Any, grad_y: Tensor, backward: WayBack) -> tuple[Tensor | None, ...]:
    return None, *backward(grad_y, *ctx.saved_tensors)


def _fake_backward(grad_y: Tensor, places: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return torch.empty_like(x), *_fake_backward_of_pixels(grad_y, places, x, weight)


def _fake_backward_of_pixels(
    grad_y: Tensor, places: Tensor, x: Tensor, weight: Tensor
) -> tuple[Tensor, ...]:
    taps, bias = pictures.empty_gradients(weight)
    return pictures.like_weight(taps), bias


_FORWARD = Way(
    "(Tensor x, Tensor weight, Tensor bias) -> (Tensor, Tensor)",
    _forward,
    lambda x, weight, bias: _results(x, weight),
)
_ON_THE_WAY_BACK = "(Tensor grad, Tensor places, Tensor x, Tensor weight)"
_recorded = pictures.register(
    "convolve_pool",
    _FORWARD,
    Way(f"{_ON_THE_WAY_BACK} -> (Tensor, Tensor, Tensor)", _backward, _fake_backward),
    _setup,
    _differentiate,
)
_recorded_of_pixels = pictures.register(
    "convolve_pool_pixels",
    _FORWARD,
    Way(f"{_ON_THE_WAY_BACK} -> (Tensor, Tensor)", _backward_of_pixels, _fake_backward_of_pixels),
    _setup,
    _differentiate_pixels,
)

__all__ = ["convolve_pool", "has_kernel"]
