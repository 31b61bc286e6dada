"""The inline exp, tanh and sigmoid, on each instruction set of this machine."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from kernel_cases import assert_agree, example, truth
from remembered import forget_calls

from fastweights import kernels
from fastweights.kernels.machinery import cpu_build
from fastweights.kernels.pictures.convolve_pool import convolve_pool
from fastweights.kernels.pictures.max_pool import max_pool
from fastweights.kernels.pictures.residual_unit import residual_unit
from fastweights.kernels.split_map import MAPS, Part, split_map

pytestmark = pytest.mark.compiler
SOURCE = Path(__file__).parent / "elementwise.cpp"
ORDER = ["DEFAULT", "AVX2", "AVX512"]
HERE = torch.backends.cpu.get_cpu_capability()
SETS = ORDER[: ORDER.index(HERE) + 1] if HERE in ORDER else ["DEFAULT"]


def call(function: str, x: torch.Tensor, capability: str) -> torch.Tensor:
    scalar = {torch.float32: "float", torch.float64: "double"}[x.dtype]
    library = cpu_build.shared_object(SOURCE, scalar, (16, 16), capability=capability)
    result = torch.full_like(x, float("nan"))
    layout = struct.pack("6q", x.numel(), 1, 1, 1, 1, 1)
    addresses = struct.pack("2q", x.data_ptr(), result.data_ptr())
    getattr(library, function)(layout, addresses)
    return result


@pytest.mark.parametrize("capability", SETS)
@pytest.mark.parametrize(
    ("function", "truth", "bound"),
    [
        ("exponential", torch.exp, 80.0),
        ("hyperbolic_tangent", torch.tanh, 20.0),
        ("logistic", torch.sigmoid, 80.0),
    ],
)
def test_relative_error_in_float32(function, truth, bound, capability):
    x = torch.cat([torch.linspace(-bound, bound, 20_001), torch.logspace(-20, 0, 999)])
    exact = truth(x.double())
    error = (call(function, x, capability).double() - exact).abs() / exact.abs().clamp_min(1e-37)
    assert error.max() < 3e-7


@pytest.mark.parametrize("function", ["exponential", "hyperbolic_tangent", "logistic"])
def test_extremes(function):
    ends = torch.tensor([-1e30, 1e30, float("nan")])
    low, high, nan = call(function, ends, HERE if HERE in ORDER else "DEFAULT").tolist()
    assert low == pytest.approx(-1.0 if function == "hyperbolic_tangent" else 0.0, abs=1e-37)
    assert high == pytest.approx(1.0) or high > 1e37
    assert nan != nan


def test_double_is_exact():
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    torch.testing.assert_close(call("exponential", x, "DEFAULT"), x.exp(), rtol=1e-15, atol=0)


@contextmanager
def built_for(capability: str) -> Iterator[None]:
    """Build kernels for another instruction set inside the block."""
    original = cpu_build.vector_flags
    try:
        forget_calls()
        cpu_build.library.cache_clear()
        cpu_build.vector_flags = lambda _=None: original(capability)
        yield
        assert cpu_build.library.cache_info().currsize, (
            "no kernel was loaded for this instruction set"
        )
    finally:
        cpu_build.vector_flags = original
        cpu_build.library.cache_clear()
        forget_calls()


@pytest.mark.parametrize("amd", [False, True])
@pytest.mark.parametrize("capability", SETS)
def test_kernels_agree_on_every_instruction_set(capability, amd, monkeypatch):
    """One source in several builds: SSE, AVX2, AVX-512, fused and split writes agree."""
    case = example("recurrent_delta_rule", 17)
    monkeypatch.setattr(cpu_build, "made_by_amd", lambda: amd)
    flags = cpu_build.vector_flags("AVX2")
    assert (cpu_build.SPLIT_WRITES in flags) == (amd and bool(flags))
    with built_for(capability), kernels.backend("cpu"):
        found = case.to(torch.float32).run_with_gradients()
    assert_agree(found, truth(case), 1e-5)


def no_recurrences(dtype: torch.dtype) -> list[torch.Tensor]:
    """Return outputs and gradients of every kernel that is no recurrence."""
    torch.manual_seed(0)
    last = {"memory_format": torch.channels_last}
    pixels = torch.randint(0, 256, (2, 4, 21, 13), dtype=torch.uint8)
    x = torch.randn(2, 16, 21, 13).to(dtype).contiguous(**last).requires_grad_()
    w, v, u, p = (torch.randn(32, 16, 3, 3).to(dtype).div_(12).requires_grad_() for _ in range(4))
    bias = torch.randn(32).to(dtype).requires_grad_()
    rows = torch.randn(11, 18 * len(MAPS)).to(dtype).requires_grad_()
    results = [
        max_pool(x),
        convolve_pool(pixels, p[:, :4] / 255, bias),
        convolve_pool(x, w, bias),
        residual_unit(x, v[:16], bias[:16], u[:16], bias[16:]),
        *split_map(rows, tuple(Part((2, 9), name) for name in MAPS)),
    ]
    loss = sum((y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum() for y in results)
    return [*results, *torch.autograd.grad(loss, [x, w, v, u, p, bias, rows])]


@pytest.mark.parametrize("capability", SETS)
def test_kernels_that_are_no_recurrences_agree_on_every_instruction_set(capability):
    with kernels.backend("reference"):
        expected = no_recurrences(torch.float64)
    with built_for(capability), kernels.backend("cpu"):
        found = no_recurrences(torch.float32)
    for mine, right in zip(found, expected, strict=True):
        scale = float(right.detach().abs().max())
        torch.testing.assert_close(mine.double(), right, atol=2e-5 * scale, rtol=0)
