"""Launches a compiled kernel on the tensors' device, in torch's current stream.

A launch neither synchronises nor allocates. It can therefore be captured in a CUDA graph, once a
call outside the capture has loaded the kernel (torch requires such a warm-up call anyway).
"""

import ctypes
import threading
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.host import install_command
from fastweights.kernels.cuda import compiler
from fastweights.kernels.cuda.arguments import Sizes, pack, padded

WARP = 32
OLDEST = (7, 5)  # sm_75: the oldest target of CUDA 13
_one_loads = threading.Lock()


class Kernel(NamedTuple):
    """One kernel of a CUDA source."""

    source: Path  # .../<operation>/cuda.cu
    name: str  # "forward" or "backward", with a dtype if each dtype has its own kernel
    warps: tuple[int, int]  # per block, for head sizes up to 32 and up to 64

    def threads(self, head_size: int) -> int:
        """Return the number of threads per block; a block handles one (batch, head)."""
        return self.warps[head_size > WARP] * WARP

    @property
    def symbol(self) -> str:
        """The kernel's name in the cubin."""
        return f"{self.source.parent.name}_{self.name}"


def unavailable(device: torch.device | None = None) -> str | None:
    """Return why no CUDA kernel can run here, in one line; None if they can."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    missing = [name for name in ("cuda.core", "cuda.bindings") if not _is_installed(name)]
    if missing:
        return f"{' and '.join(missing)} not installed: {install_command('cuda')}"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST:
        return f"the GPU's compute capability {capability} is below {OLDEST}"
    return None


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def launch(
    kernel: Kernel, sizes: Sizes, given: Sequence[Tensor], own: Sequence[Tensor | None]
) -> None:
    """Run `kernel` for every (batch, head), with tensors in the argument struct's order."""
    blocks = sizes.batch * sizes.heads
    if blocks == 0:
        return
    head_size = padded(max(sizes.keys, sizes.values))
    words = pack(sizes, given, own)
    run_on_device(kernel, head_size, blocks, kernel.threads(head_size), words, given[0].device)


def run_on_device(
    kernel: Kernel, head_size: int, blocks: int, threads: int, words: array, device: torch.device
) -> None:
    """Launch through the driver; tests replace this function to run the source on the CPU."""
    if device.type != "cuda":
        raise ValueError(f"{kernel.symbol}: expected CUDA tensors, got tensors on {device}")
    from cuda.bindings import driver

    with torch.cuda.device(device):
        loaded = _load_here(kernel, head_size, device)
        assert loaded.argument_bytes == len(words) * words.itemsize
        parameters = (ctypes.c_void_p * 1)(words.buffer_info()[0])
        (result,) = driver.cuLaunchKernel(
            loaded.function,
            *(blocks, 1, 1),
            *(threads, 1, 1),
            0,
            torch.cuda.current_stream(device).cuda_stream,
            ctypes.addressof(parameters),
            0,
        )
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{kernel.symbol}, compiled for {head_size}: {result.name}")


@cache
def why_not_loaded(kernels: tuple[Kernel, ...], head_size: int, device: torch.device) -> str | None:
    """Return why the kernels cannot be loaded on the GPU, in one line; None if they are loaded.

    Checked once. Kernels loaded here need no loading later, in a graph's capture or another thread.
    A lock serialises threads: one importing `cuda.core` during another's import may see half of it.
    """
    try:
        with _one_loads:
            for kernel in kernels:
                load(kernel, head_size, device)
    except Exception as error:  # the compiler's and driver's errors have no common base class
        reason, *_ = str(error).splitlines() or [type(error).__name__]
        return f"its kernels cannot be loaded: {reason}"
    return None


def load(kernel: Kernel, head_size: int, device: torch.device) -> None:
    """Compile and load a kernel on the GPU now; otherwise the first launch does it."""
    with torch.cuda.device(device):
        _load_here(kernel, head_size, device)


def _load_here(kernel: Kernel, head_size: int, device: torch.device) -> "_Loaded":
    """Load a kernel on the current device."""
    _make_context_current(device)
    major, minor = torch.cuda.get_device_capability(device)
    return _load(kernel, head_size, f"sm_{major}{minor}")


def _make_context_current(device: torch.device) -> None:
    """Make the device's context current; new threads, such as autograd's, have none."""
    from cuda.bindings import driver

    _, context = driver.cuCtxGetCurrent()
    if int(context) == 0:
        from cuda.core import Device

        Device(device.index).set_current()


class _Loaded(NamedTuple):
    function: Any
    argument_bytes: int
    owner: Any  # keeps the code loaded


@cache
def _load(kernel: Kernel, head_size: int, architecture: str) -> _Loaded:
    made_for = kernel.source, head_size, architecture
    try:
        return _loaded(compiler.cubin(*made_for), kernel.symbol)
    except Exception:  # the cached file may be damaged
        return _loaded(compiler.cubin(*made_for, anew=True), kernel.symbol)


def _loaded(cubin: bytes, symbol: str) -> _Loaded:
    from cuda.bindings import driver
    from cuda.core import ObjectCode

    owner = ObjectCode.from_cubin(cubin, name=symbol).get_kernel(symbol)
    (argument,) = owner.arguments_info
    return _Loaded(driver.CUfunction(int(owner.handle)), argument.size, owner)
