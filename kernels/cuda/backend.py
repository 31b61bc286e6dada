"""The CUDA kernels of an operation as one of its backends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from kernels import library
from kernels.cuda.support import why_not, without_kernel
from kernels.signature import Signature, Sizes


@dataclass(frozen=True)
class Cuda:
    """`pair` is `kernels/<operation>/cuda.py`; where no gradient is wanted, nothing is saved.

    Its OPTIONS are the values that there are kernels for, by name.
    """

    signature: Signature
    pair: ModuleType
    operator: Callable[..., Sequence[Tensor]]

    def why_not(
        self,
        device: torch.device,
        dtype: torch.dtype,
        sizes: Sizes,
        options: Sequence[Any] | None = None,
    ) -> str | None:
        chosen = self.signature.options
        if options is not None:
            chosen = dict(zip(chosen, options, strict=True))
        reason = why_not(device, dtype, sizes, self.pair.LARGEST_HEAD)
        return reason or without_kernel(self.pair.OPTIONS, **chosen)

    def run(
        self, tensors: Sequence[Tensor], options: Sequence[Any], sizes: Sizes
    ) -> Sequence[Tensor]:
        if torch.compiler.is_compiling() or library.wants_gradient(tensors):
            return self.operator(*tensors, *options)[: 1 + len(self.signature.state)]
        return self.pair.forward(*tensors, *options, save=False)


def build(signature: Signature) -> Cuda:
    """Defines the operators; once for each operation. Neither compiles nor asks for a GPU."""
    pair = import_module(f"kernels.{signature.name}.cuda")
    operator = library.register(signature, "cuda", pair.forward, pair.backward, pair.SAVED)
    return Cuda(signature, pair, operator)
