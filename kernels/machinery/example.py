"""Random arguments for an operation, like a trained model's, for tests and benchmarks.

Keys and queries are positive and sum to one, strengths and decays are in (0, 1), and shared weights
are small.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fastweights.kernels.machinery.dispatch import Operation
from fastweights.kernels.machinery.signature import Argument, shape

KEYS = ("q", "k", "recurrent_k")
STRENGTHS = ("beta", "recurrent_beta")


@dataclass(frozen=True)
class Example:
    """The tensors of a call, in the order of `Signature.arguments`."""

    operation: Operation
    tensors: list[Tensor]
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, tensors: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Call the operation; return y and the final state's tensors."""
        signature = self.operation.signature
        chosen = {**signature.options, **self.options}
        call = signature.unflatten(tensors or self.tensors, list(chosen.values()))
        arguments = call[: len(call) - len(chosen)]
        y, state = self.operation(*arguments, **self.options)
        return [y, *state]

    def gradients(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of a fixed random weighted sum of all outputs and final states."""
        generator = torch.Generator().manual_seed(1)
        weights = [_normal(output.shape, generator).to(output) for output in outputs]
        return list(torch.autograd.grad(outputs, inputs, weights, materialize_grads=True))

    def run_with_gradients(self) -> dict[str, Tensor]:
        """Return outputs and gradients by name: "y", "final state.cell", "grad q", ..."""
        signature = self.operation.signature
        tensors = [t.detach().clone() if t.is_floating_point() else t for t in self.tensors]
        leaves = [tensors[i].requires_grad_() for i in signature.differentiable]
        outputs = self.run(tensors)
        names = ["y", *(f"final {argument.name}" for argument in signature.state)]
        found = dict(zip(names, outputs, strict=True))
        grads = self.gradients(outputs, leaves)
        for i, grad in zip(signature.differentiable, grads, strict=True):
            found[f"grad {signature.arguments[i].name}"] = grad
        return {name: tensor.detach() for name, tensor in found.items()}

    def to(self, kind: torch.dtype | torch.device) -> "Example":
        """Return the same call in another floating dtype, or on another device."""
        tensors = [
            t.to(kind) if t.is_floating_point() or isinstance(kind, torch.device) else t
            for t in self.tensors
        ]
        return Example(self.operation, tensors, self.options)


def make(
    operation: Operation,
    sizes: dict[str, int],
    is_first: Callable[[int, int], Tensor] | Tensor | None = None,
    seed: int = 0,
    **options: Any,
) -> Example:
    """Return a random float64 call.

    Args:
        operation: the operation.
        sizes: T, B, H, K, V and D; the operation uses only the letters in its signature.
        is_first: bool [T, B], or a function of T and B; None for no reset.
        seed: seed of the random tensors.
        options: the operation's options.
    """
    generator = torch.Generator().manual_seed(seed)
    signature = operation.signature
    mask = is_first if is_first is not None else torch.zeros(sizes["T"], sizes["B"]).bool()
    tensors = [
        mask if argument.name == "is_first" else _tensor(argument, sizes, generator)
        for argument in signature.arguments
    ]
    return Example(operation, tensors, options)


def _tensor(argument: Argument, sizes: dict[str, int], generator: torch.Generator) -> Tensor:
    tensor = _normal(shape(argument.axes, sizes), generator)
    if argument.name in KEYS:
        return tensor.softmax(-1)
    if argument.name in STRENGTHS:
        return tensor.sigmoid()
    if argument.name == "log_decay":
        return -tensor.exp() / 4
    if "T" not in argument.axes and "B" not in argument.axes:
        return tensor / max(1, tensor.shape[-1]) ** 0.5
    return tensor


def _normal(size: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.randn(*size, generator=generator, dtype=torch.float64)
