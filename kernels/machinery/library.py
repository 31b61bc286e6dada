"""Makes one differentiable function from a backend's two plain functions.

    forward(*inputs, *weights, is_first, *state, *options) -> (y, *final_state, *saved)
    backward(*inputs, *weights, is_first, *state, *saved, grad_y, *grad_final_state, *options)
        -> the gradients of inputs, weights and state, in that order

The gradient of an unused final state has no elements and a null pointer, so no zeros are allocated.

Both functions become `torch.library` operators with fakes, so `torch.compile` and other tracers
treat each as a single operator. Calls from Python use an autograd function instead, which also
accepts functions prepared for one kind of call. Operators written in Python would take 0.2 ms
longer forward and backward, a tenth of the time of a DeltaNet unroll.
All tensors have one dtype and are on one device: `dispatch` casts them before the call.
"""

import operator
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fastweights.kernels.machinery.signature import (
    Argument,
    Signature,
    in_functorch,
    is_watched,
    shape,
)

LIBRARY = torch.library.Library("fastweights", "DEF")
Function = Callable[..., Sequence[Tensor]]
Prepared = Callable[[Sequence[Tensor]], Sequence[Tensor]]  # a `Function` with fixed options
_requires_grad = operator.attrgetter("requires_grad")


def wants_gradient(tensors: Sequence[Tensor]) -> bool:
    """Return whether autograd must record a call; if not, as while acting, nothing is saved."""
    return torch.is_grad_enabled() and any(map(_requires_grad, tensors))


class Differentiable(NamedTuple):
    """Two functions that return (y, *final_state): `traced` for tracers, `recorded` for Python.

    `traced(tensors, options)` is an operator, which raises `RuntimeError` for forward-mode
    derivatives; `recorded(forward, backward, options, *tensors)` is an autograd function.
    """

    traced: Callable[[Sequence[Tensor], Sequence[Any]], Sequence[Tensor]]
    recorded: Callable[..., Sequence[Tensor]]


def register(
    signature: Signature,
    backend: str,
    forward: Function,
    backward: Function,
    saved: Mapping[str, str],
    final: Sequence[str] = (),
) -> Differentiable:
    """Define fastweights::<op>_<backend> and its backward pass.

    Args:
        signature: the operation's signature.
        backend: "cpu" or "cuda".
        forward: see the module docstring.
        backward: see the module docstring.
        saved: name -> axes of the last results of `forward`.
        final: states whose final values `backward` also takes, after the saved tensors.
    """
    passes = _Passes.of(signature, saved, final)
    name, arguments = f"{signature.name}_{backend}", signature.arguments
    gradients = [arguments[i] for i in signature.differentiable]
    incoming = [*arguments, *passes.remembered, signature.output, *signature.state]

    _define(name, signature, len(arguments), len(passes.results), backend, forward)
    _define(f"{name}_backward", signature, len(incoming), len(gradients), backend, backward)
    _fake(name, signature, passes.results)
    _fake(f"{name}_backward", signature, gradients)

    refuse = refuse_to_differentiate(signature.name)
    reverse = _differentiable(f"{name}_backward", keep_nothing, refuse)
    return Differentiable(_traced(name, passes, reverse), _recorded(passes, reverse))


class _Passes(NamedTuple):
    """The tensors that an operation's forward pass hands to its backward pass."""

    signature: Signature
    kept: list[Argument]  # the last results of forward, used only by backward
    finals: list[int]  # positions, among the results, of final states that backward needs

    @classmethod
    def of(cls, signature: Signature, saved: Mapping[str, str], final: Sequence[str]) -> "_Passes":
        kept = [Argument(name, tuple(axes.split())) for name, axes in saved.items()]
        outputs = [signature.output, *signature.state]
        finals = [i for i, state in enumerate(outputs) if state.name in final]
        assert len(finals) == len(final)
        return cls(signature, kept, finals)

    @property
    def outputs(self) -> int:
        """The number of results returned to the caller: y and the final state's tensors."""
        return 1 + len(self.signature.state)

    @property
    def results(self) -> list[Argument]:
        return [self.signature.output, *self.signature.state, *self.kept]

    @property
    def remembered(self) -> list[Argument]:
        return [*self.kept, *(self.results[i] for i in self.finals)]

    def remember(self, ctx: Any, tensors: Sequence[Tensor], found: Sequence[Tensor]) -> None:
        finals = (found[i] for i in self.finals)
        ctx.save_for_backward(*tensors, *found[self.outputs :], *finals)
        ctx.shapes = [result.shape for result in found[: self.outputs]]
        ctx.set_materialize_grads(False)

    def all_tensors(self, ctx: Any, grads: Sequence[Tensor | None]) -> list[Tensor]:
        """Return the tensors to pass to `backward`."""
        tensors, (grad_y, *grad_states) = [*ctx.saved_tensors], grads[: self.outputs]
        like = tensors[0]
        tensors.append(like.new_zeros(ctx.shapes[0]) if grad_y is None else grad_y)
        for grad, size in zip(grad_states, ctx.shapes[1:], strict=True):
            tensors.append(like.new_empty([0] * len(size)) if grad is None else grad)
        return tensors

    def in_place(self, found: Sequence[Tensor]) -> list[Tensor | None]:
        """Return one gradient per argument, None where there is none."""
        gradients: list[Tensor | None] = [None] * len(self.signature.arguments)
        for position, gradient in zip(self.signature.differentiable, found, strict=True):
            gradients[position] = gradient
        return gradients


def _traced(
    name: str, passes: _Passes, reverse: Callable[..., Sequence[Tensor]]
) -> Callable[[Sequence[Tensor], Sequence[Any]], Sequence[Tensor]]:
    """Return `Differentiable.traced`."""
    count, outputs = len(passes.signature.arguments), passes.outputs

    def setup(ctx: Any, inputs: Sequence[Any], output: Sequence[Tensor]) -> None:
        passes.remember(ctx, inputs[:count], output)
        ctx.options = inputs[count:]

    def differentiate(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        found = reverse(*passes.all_tensors(ctx, grads), *ctx.options)
        return *passes.in_place(found), *(None for _ in ctx.options)

    whole = _differentiable(name, setup, differentiate)

    def traced(tensors: Sequence[Tensor], options: Sequence[Any]) -> Sequence[Tensor]:
        _refuse_tangents(passes.signature.name, tensors)
        return whole(*tensors, *options)[:outputs]

    return traced


def _recorded(
    passes: _Passes, reverse: Callable[..., Sequence[Tensor]]
) -> Callable[..., Sequence[Tensor]]:
    """Return `Differentiable.recorded`."""
    outputs = passes.outputs  # computed once: the functions below run in every training step

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, go: Prepared, go_back: Prepared, options: Sequence[Any], *tensors: Tensor
        ) -> tuple[Tensor, ...]:
            found = go(tensors)
            passes.remember(ctx, tensors, found)
            ctx.options, ctx.go_back = options, go_back
            return tuple(found[:outputs])

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
            tensors = passes.all_tensors(ctx, grads)
            # With a graph of the backward pass (create_graph), the operator raises the error.
            watched = is_watched(grads)
            found = reverse(*tensors, *ctx.options) if watched else ctx.go_back(tensors)
            return None, None, None, *passes.in_place(found)

    return Recorded.apply


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


def _refuse_tangents(operation: str, tensors: Sequence[Tensor]) -> None:
    """Raise an error for forward-mode derivatives, which torch would silently drop."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return
    if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        _has_no_tangents(operation)


def _has_no_tangents(operation: str) -> typing.NoReturn:
    raise RuntimeError(
        f"{operation}: the compiled kernels have no forward-mode derivatives; "
        f'use the reference backend: `with kernels.backend("reference"):`'
    )


def _differentiable(
    name: str, setup: Callable[..., None], differentiate: Callable[..., Any]
) -> Callable[..., Any]:
    """Register an operator's derivative; return a callable that also works under `torch.func`.

    The transforms of `torch.func` use an autograd function's derivative, not an operator's.
    """
    called = getattr(torch.ops.fastweights, name).default
    torch.library.register_autograd(
        f"fastweights::{name}", differentiate, setup_context=setup, lib=LIBRARY
    )

    class Transformed(torch.autograd.Function):
        generate_vmap_rule = True
        forward = staticmethod(lambda *call: called(*call))
        setup_context = staticmethod(setup)
        backward = staticmethod(differentiate)
        # Called for tangents of a gradient, as in `torch.func.hessian`.
        jvp = staticmethod(lambda ctx, *tangents: _has_no_tangents(name))

    def call(*arguments: Any) -> Any:
        if torch.compiler.is_compiling() or not in_functorch():
            return called(*arguments)
        return Transformed.apply(*arguments)

    return call


def keep_nothing(ctx: Any, inputs: Sequence[Any], output: Tensor | Sequence[Tensor]) -> None:
    """Save nothing for the backward pass: the setup for functions that have no derivative."""


def refuse_to_differentiate(operation: str) -> Callable[..., typing.NoReturn]:
    """Return a backward function that raises an error about second derivatives."""

    def refuse(ctx: Any, *grads: Any) -> typing.NoReturn:
        raise RuntimeError(
            f"{operation}: the compiled kernels can be differentiated once; for second "
            f'derivatives use the reference backend: `with kernels.backend("reference"):`'
        )

    return refuse
