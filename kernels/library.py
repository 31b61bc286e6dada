"""Makes a backend's two plain functions one differentiable function.

    forward(*inputs, *weights, is_first, *state, *options) -> (y, *final_state, *saved)
    backward(*inputs, *weights, is_first, *state, *saved, grad_y, *grad_final_state, *options)
        -> the gradients of inputs, weights and state, in that order

The gradient of a final state that nobody used has no elements (and a null pointer): no zeros.

Both become `torch.library` operators with fakes, so `torch.compile` keeps them whole, forward and
backward. Called from Python they are an autograd function: operators written in Python take a
quarter of a millisecond longer forward and backward, a tenth of what an unroll of DeltaNet takes.
The tensors have one dtype and are on one device: `dispatch` casts before it calls.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kernels.signature import Argument, Signature, shape

LIBRARY = torch.library.Library("fastweights", "DEF")
Function = Callable[..., Sequence[Tensor]]


def wants_gradient(tensors: Sequence[Tensor]) -> bool:
    """Whether a call must be recorded; where not, as in acting, an operator is not needed."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def register(
    signature: Signature,
    backend: str,
    forward: Function,
    backward: Function,
    saved: Mapping[str, str],
    final: Sequence[str] = (),
) -> Function:
    """Defines fastweights::<op>_<backend> and its backward; returns the differentiable function.

    It takes the arguments and options, and returns (y, *final_state).

    `backend` is "cpu" or "cuda"; `saved` gives name -> axes of what `forward` returns last, `final`
    names the states whose final value `backward` wants too, after what is saved.
    """
    kept = [Argument(name, tuple(axes.split())) for name, axes in saved.items()]
    results = [signature.output, *signature.state, *kept]
    outputs = len(results) - len(kept)
    finals = [i for i, state in enumerate(results[:outputs]) if state.name in final]
    assert len(finals) == len(final)
    count, name = len(signature.arguments), f"{signature.name}_{backend}"
    gradients = [signature.arguments[i] for i in signature.differentiable]
    remembered = [*kept, *(results[i] for i in finals)]
    incoming = [*signature.arguments, *remembered, signature.output, *signature.state]

    _define(name, signature, count, len(results), backend, forward)
    _define(f"{name}_backward", signature, len(incoming), len(gradients), backend, backward)
    _fake(name, signature, results)
    _fake(f"{name}_backward", signature, gradients)

    operator = getattr(torch.ops.fastweights, name)
    reverse = getattr(torch.ops.fastweights, f"{name}_backward")

    def setup(ctx: Any, inputs: Sequence[Any], output: Sequence[Tensor]) -> None:
        ctx.save_for_backward(*inputs[:count], *output[outputs:], *(output[i] for i in finals))
        ctx.options = inputs[count:]
        ctx.shapes = [result.shape for result in output[:outputs]]
        ctx.set_materialize_grads(False)

    def differentiate(ctx: Any, go_back: Function, *grads: Any) -> tuple[Tensor | None, ...]:
        like, (grad_y, *grad_states) = ctx.saved_tensors[0], grads[:outputs]
        given = [like.new_zeros(ctx.shapes[0]) if grad_y is None else grad_y]
        for grad, size in zip(grad_states, ctx.shapes[1:], strict=True):
            given.append(like.new_empty([0] * len(size)) if grad is None else grad)
        found = go_back(*ctx.saved_tensors, *given, *ctx.options)
        gradients: list[Tensor | None] = [None] * (count + len(ctx.options))
        for position, gradient in zip(signature.differentiable, found, strict=True):
            gradients[position] = gradient
        return tuple(gradients)

    torch.library.register_autograd(
        f"fastweights::{name}",
        lambda ctx, *grads: differentiate(ctx, reverse, *grads),
        setup_context=setup,
        lib=LIBRARY,
    )
    _once_differentiable(f"{name}_backward", signature.name)

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *call: Any) -> tuple[Tensor, ...]:
            results = forward(*call)
            setup(ctx, call, results)
            return tuple(results[:outputs])

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
            # With a graph of the backward pass (create_graph), the operator says what it cannot.
            return differentiate(ctx, reverse if torch.is_grad_enabled() else backward, *grads)

    def run(*call: Any) -> Sequence[Tensor]:
        if torch.compiler.is_compiling():
            return operator.default(*call)[:outputs]
        return Eager.apply(*call)

    return run


def _define(
    name: str,
    signature: Signature,
    tensors: int,
    results: int,
    backend: str,
    function: Function,
) -> None:
    arguments = [f"Tensor t{i}" for i in range(tensors)]
    arguments += [f"str {option}" for option in signature.options]
    returned = ", ".join(["Tensor"] * results)
    returned = f"({returned})" if results > 1 else "Tensor"
    LIBRARY.define(
        f"{name}({', '.join(arguments)}) -> {returned}", tags=(torch.Tag.pt2_compliant_tag,)
    )
    LIBRARY.impl(name, lambda *call: tuple(function(*call)), backend.upper())


def _fake(name: str, signature: Signature, results: Sequence[Argument]) -> None:
    def fake(*call: Any) -> tuple[Tensor, ...]:
        sizes = signature.sizes(call[: len(signature.arguments)])
        return tuple(call[0].new_empty(shape(result.axes, sizes)) for result in results)

    torch.library.register_fake(f"fastweights::{name}", fake, lib=LIBRARY)


def _once_differentiable(name: str, operation: str) -> None:
    def refuse(ctx: Any, *grads: Any) -> None:
        raise RuntimeError(
            f"{operation}: the compiled kernels can be differentiated once; for second "
            f'derivatives use the reference backend: `with kernels.backend("reference"):`'
        )

    torch.library.register_autograd(f"fastweights::{name}", refuse, lib=LIBRARY)
