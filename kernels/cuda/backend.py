"""An operation's CUDA kernels as one of its backends."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import Tensor

from fastweights.kernels.cuda.kernel import CudaKernel
from fastweights.kernels.cuda.support import why_not, without_kernel
from fastweights.kernels.machinery import library
from fastweights.kernels.machinery.request import Request
from fastweights.kernels.machinery.signature import Signature, Sizes, is_traced


@dataclass(frozen=True)
class Cuda:
    """The CUDA backend. It saves tensors for the backward pass only if a gradient is needed."""

    kernel: CudaKernel
    differentiable: library.Differentiable

    def why_not(self, request: Request) -> str | None:
        """Return why such a call cannot run here, in one line; None if it can."""
        kernel = self.kernel
        reason = why_not(request, bool(kernel.source.units)) or without_kernel(
            kernel.source.options, **request.options
        )
        return reason or kernel.why_not_loaded(request.device, request.sizes)

    def run(
        self, tensors: Sequence[Tensor], options: Sequence[Any], sizes: Sizes
    ) -> Sequence[Tensor]:
        """Run the kernels; return y and the final state's tensors, differentiable."""
        if is_traced():
            return self.differentiable.traced(tensors, options)
        if not library.wants_gradient(tensors):
            return self.kernel.forward(*tensors, *options, save=False)
        return self.differentiable.recorded(
            lambda given: self.kernel.forward(*given, *options),
            lambda given: self.kernel.backward(*given, *options),
            options,
            *tensors,
        )


def build(signature: Signature) -> Cuda:
    """Define an operation's CUDA operators. Does not compile or query a GPU."""
    source = import_module(f"fastweights.kernels.{signature.name}.cuda").SOURCE
    kernel = CudaKernel(signature, source)
    forward, backward = kernel.forward, kernel.backward
    return Cuda(kernel, library.register(signature, "cuda", forward, backward, source.saved))
