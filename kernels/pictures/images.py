"""Parts shared by the image stem's kernels: supported tensors, memory and operators."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from fastweights.kernels.machinery.library import LIBRARY, keep_nothing, refuse_to_differentiate
from fastweights.kernels.machinery.signature import in_functorch, is_traced, is_watched

Picture = Float[Tensor, "N C Y X"]
Weight = Float[Tensor, "D C 3 3"]
Bias = Float[Tensor, " D"]
Length = int | torch.SymInt  # symbolic while a graph is traced
FULL_REGISTERS = 16  # a convolution's output channels must be a multiple of it


def is_plain() -> bool:
    """Return whether neither `torch.func` nor forward-mode derivatives observe this call.

    PyTorch's own operators support both; these kernels support neither.
    """
    if torch.compiler.is_compiling():
        return True
    return not in_functorch() and forward_ad._current_level < 0


def check(x: Tensor, weight: Tensor, bias: Tensor) -> None:
    """Raise a `ValueError` unless the weights are 3 x 3 taps that match these pictures."""
    if weight.shape[1:] != (x.shape[1], 3, 3) or bias.shape != weight.shape[:1]:
        raise ValueError(
            f"pictures {tuple(x.shape)} need weights [D, {x.shape[1]}, 3, 3] and a bias [D], "
            f"got {tuple(weight.shape)} and {tuple(bias.shape)}"
        )


def takes(*tensors: Tensor) -> bool:
    """Return whether the kernels support these tensors: on CPUs, all float32 or all float64."""
    if not is_plain():
        return False
    dtype = tensors[-1].dtype
    if dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled("cpu"):
        return False
    return all(tensor.is_cpu and tensor.dtype is dtype for tensor in tensors)


def is_channels_last(x: Tensor) -> bool:
    """Return whether x is non-empty and has channels last in memory."""
    return x.numel() > 0 and x.is_contiguous(memory_format=torch.channels_last)


def channels_last(x: Tensor) -> Tensor:
    """Return x with channels last in memory, as the kernels read it."""
    return x.contiguous(memory_format=torch.channels_last)


def is_pixels(x: Tensor) -> bool:
    """Return whether x is uint8."""
    return x.dtype is torch.uint8


def empty_pictures(
    like: Tensor, channels: Length, size: Sequence[Length], dtype: torch.dtype
) -> Tensor:
    """Allocate as many uninitialised pictures of size (height, width)."""
    form = {"device": like.device, "memory_format": torch.channels_last}
    return torch.empty((like.shape[0], channels, *size), dtype=dtype, **form)


def empty_pooled(x: Tensor, channels: Length, dtype: torch.dtype) -> Tensor:
    """Allocate one uninitialised number per pooling window."""
    return empty_pictures(x, channels, [(side + 1) // 2 for side in x.shape[2:]], dtype)


def sizes(x: Tensor) -> tuple[int, int, int]:
    """Return the number of pictures, height and width, in the kernels' order."""
    return x.shape[0], x.shape[2], x.shape[3]


def forward(weight: Weight, bias: Bias) -> tuple[Float[Tensor, "3 3 C D"], Bias]:
    """Return weights and bias in the layout of the forward kernels."""
    return weight.detach().permute(2, 3, 1, 0).contiguous(), bias.detach().contiguous()


def turned_taps(weight: Weight) -> Float[Tensor, "3 3 D C"]:
    """Return taps for the backward pass: rotated by 180 degrees, input and output swapped."""
    return weight.detach().flip(2, 3).permute(2, 3, 0, 1).contiguous()


def like_weight(grad: Float[Tensor, "3 3 C D"]) -> Weight:
    """Return a gradient of taps in the layout of the weights."""
    return grad.permute(3, 2, 0, 1)


def empty_gradients(weight: Weight) -> tuple[Float[Tensor, "3 3 C D"], Bias]:
    """Allocate uninitialised gradients of taps and bias."""
    outputs, inputs = weight.shape[:2]
    return weight.new_empty((3, 3, inputs, outputs)), weight.new_empty(outputs)


class Way(NamedTuple):
    """One direction of an operator, forward or backward: its schema without name, and function."""

    schema: str
    function: Callable[..., Any]
    fake: Callable[..., Any]  # the same for tensors without data
    devices: Sequence[str] = ("CPU",)


def register(
    name: str,
    forward: Way,
    backward: Way,
    setup: Callable[..., None],
    differentiate: Callable[[Any, Tensor, Callable[..., Any]], Any],
) -> Callable[..., Tensor]:
    """Define fastweights::<name> and its backward operator; return a differentiable function.

    The forward operator returns the result and a tensor for the backward pass. In the backward
    pass, `differentiate(context, gradient, backward)` calls the backward operator, which cannot be
    differentiated again. The returned function calls the operators while tracing and their plain
    functions otherwise, because operators written in Python take 0.2 ms longer.
    """
    for full, way in ((name, forward), (f"{name}_backward", backward)):
        LIBRARY.define(full + way.schema)
        for device in way.devices:
            LIBRARY.impl(full, way.function, device)
        torch.library.register_fake(f"fastweights::{full}", way.fake, lib=LIBRARY)
    whole, back = (getattr(torch.ops.fastweights, full) for full in (name, f"{name}_backward"))

    def remember(ctx: Any, inputs: Sequence[Tensor], output: Sequence[Tensor]) -> None:
        setup(ctx, inputs, output)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # no zeros for the kept tensor's gradient

    def go_back(ctx: Any, grad: Tensor | None, _: Any) -> Any:
        if grad is None:
            return (None,) * len(ctx.needs_input_grad)
        return differentiate(ctx, grad, back)

    refuse = refuse_to_differentiate(name)
    for full, derivative, kept in (
        (name, go_back, remember),
        (f"{name}_backward", refuse, keep_nothing),
    ):
        torch.library.register_autograd(
            f"fastweights::{full}", derivative, setup_context=kept, lib=LIBRARY
        )

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            output = forward.function(*inputs)
            setup(ctx, inputs, output)
            return output[0]

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            # With a graph of the backward pass (create_graph), the operator raises the error.
            return differentiate(ctx, *grads, back if is_watched(grads) else backward.function)

    def call(*inputs: Tensor) -> Tensor:
        return whole(*inputs)[0] if is_traced() else Recorded.apply(*inputs)

    return call
