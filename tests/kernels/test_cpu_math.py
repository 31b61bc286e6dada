"""The inline exp, tanh and sigmoid, on each instruction set that this machine has."""

import struct
from pathlib import Path

import pytest
import torch

from kernels import cpu_build

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


@pytest.mark.parametrize("amd", [False, True])
@pytest.mark.parametrize("capability", SETS)
def test_kernels_agree_on_every_instruction_set(capability, amd, monkeypatch):
    """One source, several builds: SSE, AVX2, AVX-512, fused and split writes agree."""
    from kernel_cases import assert_agree, example, truth

    import kernels

    case = example("recurrent_delta_rule", 17)
    original = cpu_build.vector_flags
    monkeypatch.setattr(cpu_build, "made_by_amd", lambda: amd)
    assert (cpu_build.SPLIT_WRITES in original("AVX2")) == (amd and bool(original("AVX2")))
    try:
        cpu_build.library.cache_clear()
        cpu_build.vector_flags = lambda _=None: original(capability)
        with kernels.backend("cpu"):
            case.operation.signature._seen.clear()
            found = case.to(torch.float32).run_with_gradients()
    finally:
        cpu_build.vector_flags = original
        cpu_build.library.cache_clear()
        case.operation.signature._seen.clear()
    assert_agree(found, truth(case), 1e-5)
