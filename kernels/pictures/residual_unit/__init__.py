"""The image stem's residual unit: x + second(relu(first(relu(x)))), two 3 x 3 convolutions.

PyTorch's CPU convolutions multiply every tap, and each ReLU and sum between them is another pass
over memory. The C++ kernel needs a third of the multiplications (kernels/include/winograd.h) and
applies the whole unit to a picture while it is in the caches. Results differ by about 1e-6 of the
largest input of a 3 x 3 output tile. An infinity there makes the tile NaN.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fastweights.kernels.machinery import cpu_build, direct_call
from fastweights.kernels.machinery.library import wants_gradient
from fastweights.kernels.machinery.signature import is_traced
from fastweights.kernels.pictures import images as pictures
from fastweights.kernels.pictures.images import FULL_REGISTERS, Bias, Picture, Way, Weight

SOURCE = "pictures/residual_unit/cpu.cpp"


def residual_unit(
    x: Picture, first: Weight, first_bias: Bias, second: Weight, second_bias: Bias
) -> Picture:
    """Apply the unit, with one pixel of padding. Accepts any floating dtype, on any device.

    The kernel runs for float32 and float64 on CPUs, with channels last in memory and a multiple of
    16 channels. Other calls, and machines without a compiler, use PyTorch's convolutions.

    Raises:
        ValueError: the numbers of input and output channels differ.
    """
    inputs = (x, first, first_bias, second, second_bias)
    for weight, bias in zip(inputs[1::2], inputs[2::2], strict=True):
        pictures.check(x, weight, bias)
        if len(weight) != x.shape[1]:
            raise ValueError(f"a unit needs as many output as input channels, not {len(weight)}")
    if not has_kernel(*inputs):
        inner = F.relu(F.conv2d(F.relu(x), first, first_bias, padding=1), inplace=True)
        return x + F.conv2d(inner, second, second_bias, padding=1)
    if is_traced() or wants_gradient(inputs):
        return _recorded(*inputs)
    return _run(None, *inputs)


def has_kernel(x: Tensor, *weights: Tensor) -> bool:
    """Return whether `residual_unit` runs its own kernel on these tensors; build it if needed."""
    if not (pictures.takes(x, *weights) and pictures.is_channels_last(x)):
        return False
    channels = x.shape[1]
    if channels % FULL_REGISTERS:
        return False
    return direct_call.is_there(SOURCE, x.dtype, (channels, channels))


def _library(x: Tensor) -> cpu_build.Library:
    return direct_call.library(SOURCE, x.dtype, (x.shape[1], x.shape[1]))


def _run(
    inner: Picture | None, x: Picture, first: Weight, b: Bias, second: Weight, c: Bias
) -> Picture:
    """Return y. `inner` is memory for the second convolution's input, or None to discard it."""
    x = pictures.channels_last(x)
    y = torch.empty_like(x)
    first_pair, second_pair = pictures.forward(first, b), pictures.forward(second, c)
    tensors = x, *first_pair, *second_pair, y, inner
    direct_call.call(_library(x).forward, pictures.sizes(x), tensors)
    return y


def _forward(x: Picture, *weights: Tensor) -> tuple[Picture, Picture]:
    inner = torch.empty_like(pictures.channels_last(x))
    return _run(inner, x, *weights), inner


def _backward(
    grad_y: Picture, x: Picture, inner: Picture, first: Weight, second: Weight
) -> tuple[Tensor, ...]:
    grad_y, x, inner = map(pictures.channels_last, (grad_y, x, inner))
    grad_x, grads = torch.empty_like(x), _empty_gradients(first, second)
    weights = pictures.turned_taps(first), pictures.turned_taps(second)
    tensors = (grad_y, x, inner, *weights, grad_x, *chain.from_iterable(grads))
    direct_call.call(_library(x).backward, pictures.sizes(x), tensors)
    return grad_x, *_as_weights(grads)


def _empty_gradients(*weights: Weight) -> list[tuple[Tensor, Tensor]]:
    return [pictures.empty_gradients(weight) for weight in weights]


def _as_weights(grads: list[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
    for taps, bias in grads:
        yield pictures.like_weight(taps)
        yield bias


def _setup(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    x, first, _, second, _ = inputs
    ctx.save_for_backward(x, output[1], first, second)


def _differentiate(
    ctx: Any, grad_y: Tensor, backward: Callable[..., tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    return backward(grad_y, *ctx.saved_tensors)


def _fake_backward(
    grad_y: Tensor, x: Tensor, inner: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, ...]:
    return torch.empty_like(x), *_as_weights(_empty_gradients(first, second))


_recorded = pictures.register(
    "residual_unit",
    Way(
        "(Tensor x, Tensor w, Tensor b, Tensor v, Tensor c) -> (Tensor, Tensor)",
        _forward,
        lambda x, *weights: (torch.empty_like(x), torch.empty_like(x)),
    ),
    Way(
        "(Tensor grad, Tensor x, Tensor inner, Tensor w, Tensor v)"
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        _backward,
        _fake_backward,
    ),
    _setup,
    _differentiate,
)

__all__ = ["has_kernel", "residual_unit"]
