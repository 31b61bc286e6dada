"""`python -m fastweights.kernels`: this machine's backends, and a self-test of each kernel.

Builds kernels that are not built yet. Exits with 1 if an available backend gives wrong numbers, and
with 2 if the environment names a backend that does not exist.
"""

import argparse
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from fastweights import kernels
from fastweights.host import UserError, one_line_errors, user_input
from fastweights.kernels import split_map
from fastweights.kernels.feature_maps import FEATURE_MAPS, STRENGTH_MAPS
from fastweights.kernels.machinery import cpu_build
from fastweights.kernels.machinery.cache import cache_folder
from fastweights.kernels.machinery.dispatch import ENVIRONMENT_VARIABLE, Operation
from fastweights.kernels.machinery.example import make
from fastweights.kernels.pictures import convolve_pool, max_pool, pixels, residual_unit
from fastweights.kernels.registry import OPERATIONS

SIZES = {"T": 9, "B": 3, "H": 2, "K": 16, "V": 16, "D": 16}
TOLERANCE = 1e-5
BACKENDS_TESTED = ("cpu", "chunked", "cuda")
PARTS = (
    *(split_map.Part((8,), name) for name in FEATURE_MAPS),
    *(split_map.Part((1,), name) for name in STRENGTH_MAPS),
)


def describe_machine() -> list[str]:
    """Return lines that describe the processor, threads, compilers and GPU."""
    try:
        path = cpu_build.compiler()
        lines = cpu_build.compiler_version(path).splitlines()
        compiler = f"{path} ({lines[0] if lines else 'version unknown'})"
    except cpu_build.BuildError as error:
        compiler = f"none: {error}"
    try:
        cache = str(cache_folder())
    except OSError as error:
        cache = f"none: {error}"
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none visible to torch"
    return [
        f"processor  {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, "
        f"{torch.get_num_threads()} threads",
        f"compiler   {compiler}",
        f"cache      {cache}",
        f"GPU        {cuda}",
        f"backend    {kernels.requested_backend()} ({ENVIRONMENT_VARIABLE})",
    ]


def self_test(operation: Operation, backend: str) -> tuple[bool, str]:
    """Return whether the backend is correct or unavailable, and a line that says which."""
    if backend not in operation.backends:
        return True, f"not available: it has no {backend} kernel"
    device = torch.device("cuda" if backend == "cuda" else "cpu")
    began = time.perf_counter()
    mask = torch.rand(SIZES["T"], SIZES["B"], generator=torch.Generator().manual_seed(0)) < 0.2
    case = make(operation, SIZES, mask)
    sizes = operation.signature.sizes(case.tensors)
    request = operation.request(device, torch.float32, sizes)
    reason = operation.backends[backend].why_not(request)
    if reason:
        return True, f"not available: {reason}"
    with kernels.backend("reference"):
        expected = case.run_with_gradients()
    with kernels.backend(backend):
        found = case.to(torch.float32).to(device).run_with_gradients()
    errors = {
        name: float((found[name].cpu() - right).abs().max() / right.abs().max().clamp_min(1.0))
        for name, right in expected.items()
    }
    worst = max(errors, key=lambda name: _size(errors[name]))
    seconds = time.perf_counter() - began
    good = errors[worst] <= TOLERANCE
    verdict = "ok" if good else "WRONG"
    return good, f"{verdict}, largest error {errors[worst]:.0e} ({worst}), {seconds:.1f} s"


def self_tests_beside_pytorch(device: str = "cpu") -> Iterator[tuple[str, bool, str]]:
    """Test the kernels that are not recurrences; yield (name, whether it is correct, a line)."""
    last = {"memory_format": torch.channels_last}
    frames = torch.arange(2 * 4 * 9 * 9).remainder(251).to(torch.uint8).view(2, 4, 9, 9)
    x = torch.linspace(-1, 1, 2 * 16 * 9 * 9).cos().view(2, 16, 9, 9).contiguous(**last)
    first, second = (torch.linspace(-a, a, 16 * 16 * 9).sin().view(16, 16, 3, 3) for a in (90, 70))
    bias = torch.linspace(-1, 1, 16)
    units = [x, first, bias, second, bias]
    taps = first[:, :4].contiguous(**last) / 255
    width = sum(part.length for part in PARTS)
    rows = torch.linspace(-3, 3, 5 * width).view(5, width)
    unit, pool, stage = residual_unit.residual_unit, max_pool.max_pool, convolve_pool.convolve_pool
    for name, has_kernel, function, tensors in (
        ("pixels", pixels.has_kernel, pixels.as_numbers, [frames, taps]),
        ("max_pool", max_pool.has_kernel, pool, [x]),
        ("convolve_pool", convolve_pool.has_kernel, stage, [x, first, bias]),
        ("convolve_pool, pixels", convolve_pool.has_kernel, stage, [frames, taps, bias]),
        ("residual_unit", residual_unit.has_kernel, unit, units),
        ("split_map", partial(split_map.has_kernel, parts=PARTS), _split_map, [rows]),
    ):
        tensors = [each.to(device) for each in tensors]
        if not has_kernel(*tensors):
            yield name, True, "not available: PyTorch's own kernel runs"
            continue
        inputs = [each.clone().requires_grad_(each.is_floating_point()) for each in tensors]
        found = _with_gradients(function, inputs)
        with kernels.backend("reference"):
            expected = _with_gradients(function, inputs)
        pairs = zip(found, expected, strict=True)
        errors = [float((a - b).abs().max() / b.abs().max().clamp_min(1.0)) for a, b in pairs]
        good = all(error <= TOLERANCE for error in errors)
        worst = max(errors, key=_size)
        yield name, good, f"{'ok' if good else 'WRONG'}, largest error {worst:.0e}"


def _size(error: float) -> tuple[bool, float]:
    """Return a key by which NaN is the largest error; a plain `max` would ignore it."""
    return math.isnan(error), error


def _split_map(x: Tensor) -> Tensor:
    return torch.cat([part.flatten(1) for part in split_map.split_map(x, PARTS)], 1)


def _with_gradients(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    y = function(*inputs)
    if not y.requires_grad:
        return [y]
    wanted = [each for each in inputs if each.requires_grad]
    return [y.detach(), *torch.autograd.grad(y.square().sum(), wanted)]


@one_line_errors  # Ctrl-C, too
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fastweights.kernels", description=__doc__)
    _, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise UserError(f"unrecognized arguments: {' '.join(unknown)} (there are none, see --help)")
    with user_input():
        kernels.requested_backend()
    print("\n".join(describe_machine()))
    good = True
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        for name, passed, line in self_tests_beside_pytorch(device):
            print(f"{name:22s} {device:8s} {line}", flush=True)
            good = good and passed
    for name, operation in OPERATIONS.items():
        for backend in BACKENDS_TESTED:
            if backend == "chunked" and backend not in operation.backends:
                continue  # most recurrences have no chunked backend
            passed, line = self_test(operation, backend)
            print(f"{name:22s} {backend:8s} {line}", flush=True)
            good = good and passed
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
