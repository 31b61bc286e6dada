"""Builds an operation from its reference, its chunked form and its compiled kernels.

Nothing is compiled and no GPU is queried until a call needs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fastweights.kernels.cuda import backend as cuda_backend
from fastweights.kernels.machinery import cpu_build, library
from fastweights.kernels.machinery.cpu_call import CpuKernel, Plan
from fastweights.kernels.machinery.dispatch import Operation, PyTorch
from fastweights.kernels.machinery.request import Request
from fastweights.kernels.machinery.signature import Function, Signature, Sizes, is_traced


@dataclass(frozen=True)
class Cpu:
    """The C++ kernel as a backend. Calls without gradients, as while acting, go straight to C++."""

    kernel: CpuKernel
    differentiable: library.Differentiable

    def why_not(self, request: Request) -> str | None:
        """Return why such a call cannot run here, in one line; None if it can."""
        return self.kernel.why_not(request)

    def run(
        self, tensors: Sequence[Tensor], options: Sequence[Any], sizes: Sizes
    ) -> Sequence[Tensor]:
        """Run the kernel; return y and the final state's tensors, differentiable."""
        if is_traced():
            return self.differentiable.traced(tensors, options)
        return self.prepare(tensors, options, sizes, library.wants_gradient(tensors))(tensors)

    def prepare(
        self, tensors: Sequence[Tensor], options: Sequence[Any], sizes: Sizes, gradient: bool
    ) -> library.Prepared:
        """Return `run` for tensors of the same shapes, strides, dtypes and device."""

        def plan(function: str) -> Plan:
            return self.kernel.plan(function, tensors[0].dtype, sizes, options)

        if not gradient:
            return plan("infer").prepare(tensors)
        forward, backward = plan("forward").prepare(tensors), plan("backward").run
        recorded = self.differentiable.recorded
        return lambda given: recorded(forward, backward, options, *given)


def build_operation(
    name: str,
    reference: Function,
    *,
    saved: dict[str, str],
    final: tuple[str, ...] = (),
    head_axes: tuple[str, ...] = ("K", "V"),
    options: dict[str, Sequence[str]] | None = None,
    oblong: bool = False,
    chunked: Function | None = None,
    on_cuda: Function | None = None,
) -> Operation:
    """Return an operation whose C++ source is `<name>/cpu.cpp`; see `CpuKernel` for the options.

    `<name>/cuda.py`, if it exists, is the CUDA backend; `on_cuda` is a plain PyTorch form instead.
    """
    signature = Signature(name, reference)
    folder = cpu_build.KERNELS / name
    kernel = CpuKernel(
        signature, folder / "cpu.cpp", saved, head_axes, options or {}, final, oblong
    )
    recorded = library.register(signature, "cpu", kernel.forward, kernel.backward, saved, final)
    backends = {"reference": PyTorch(signature, reference), "cpu": Cpu(kernel, recorded)}
    if chunked:
        backends["chunked"] = PyTorch(signature, chunked)
    if on_cuda:
        backends["cuda"] = PyTorch(signature, on_cuda, device="cuda")
    elif (folder / "cuda.py").exists():
        backends["cuda"] = cuda_backend.build(signature)
    return Operation(signature, backends, options or {})
