"""The max-pooling's CUDA source, run on the CPU, against PyTorch's: values, winners, gradients."""

import pytest
import torch
import torch.nn.functional as F
from cuda_shim import ASCENDING, DESCENDING, SHUFFLED
from torch import Tensor

from kernels import max_pool as package
from kernels.cuda import compiler
from kernels.cuda.launch import unavailable
from kernels.cuda.registers import ARCHITECTURES, usage
from kernels.max_pool import cuda, has_kernel, max_pool

SIZES = [(3, 16, 21, 21), (2, 32, 7, 4), (1, 4, 1, 1), (2, 8, 2, 3), (5, 12, 6, 5)]
DTYPES = [torch.float32, torch.bfloat16]
WITHOUT_GPU = unavailable()
EVERY_SIZE = pytest.mark.parametrize("size", SIZES, ids=str)
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def pictures(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Few different values, so that windows have several equal maxima."""
    x = torch.randint(-4, 5, size, generator=torch.Generator().manual_seed(0))
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


def expected(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, stride=2, padding=1)


def whole_numbers(y: Tensor) -> Tensor:
    """Gradients of which sums of four are exact in every dtype."""
    return torch.randint(-4, 5, y.shape, device=y.device).to(y.dtype)


def assert_as_pytorch(x: Tensor) -> None:
    with torch.no_grad():
        inferred = max_pool(x)
    y, wanted = max_pool(x.requires_grad_()), expected(x)
    torch.testing.assert_close(y, wanted, equal_nan=True, atol=0, rtol=0)
    torch.testing.assert_close(inferred, wanted, equal_nan=True, atol=0, rtol=0)
    grad = whole_numbers(y)
    (found,) = torch.autograd.grad(y, x, grad)
    assert torch.equal(found, *torch.autograd.grad(wanted, x, grad))
    for made in (y, inferred, found):
        assert made.is_contiguous(memory_format=torch.channels_last)


@pytest.fixture
def emulated(shim, monkeypatch):
    """CPU tensors take the way of CUDA tensors, but for the driver."""
    monkeypatch.setitem(package.RUN, "cpu", cuda.run)
    return shim


@EVERY_SIZE
@EVERY_DTYPE
@pytest.mark.parametrize("order", [ASCENDING, DESCENDING, SHUFFLED])
def test_values_winners_and_gradients(emulated, size, dtype, order):
    emulated.order = order
    assert_as_pytorch(pictures(size, dtype))
    ways = [kernel.name.split("_")[0] for kernel in emulated.launched]
    assert ways == ["forward", "forward", "backward"]


@EVERY_DTYPE
def test_nan_wins_and_minus_infinity_loses(emulated, dtype):
    x = pictures((2, 8, 9, 9), dtype)
    x[0, 3, 4, 4] = float("nan")
    x[1] = -torch.inf
    assert_as_pytorch(x)
    assert emulated.launched


def test_bfloat16_gradients_are_rounded_once(emulated):
    x = pictures((4, 16, 20, 20), torch.bfloat16).requires_grad_()
    y = max_pool(x)
    grad = torch.randn(y.shape).bfloat16()
    grad[0, 0] = float("nan")
    (found,) = torch.autograd.grad(y, x, grad)
    double = x.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(expected(double), double, grad.double())
    torch.testing.assert_close(found, exact.float().bfloat16(), equal_nan=True, atol=0, rtol=0)


def test_a_view_that_begins_between_two_fours(emulated):
    memory = torch.randn(1 + 2 * 6 * 6 * 4)
    x = memory[1:].view(2, 6, 6, 4).permute(0, 3, 1, 2)
    assert x.data_ptr() % 16 and x.is_contiguous(memory_format=torch.channels_last)
    assert_as_pytorch(x)


@pytest.mark.parametrize(
    ("size", "dtype"),
    [((2, 6, 5, 5), torch.float32), ((2, 8, 5, 5), torch.float64), ((2, 8, 5, 5), torch.float16)],
)
def test_what_the_kernels_do_not_take(size, dtype, monkeypatch):
    monkeypatch.setattr(cuda, "is_there", lambda device: True)
    assert not cuda.takes(pictures(size, dtype))
    assert cuda.takes(pictures((2, 8, 5, 5), torch.float32))
    assert not cuda.takes(torch.empty((2**17, 16, 32, 32), device="meta"))  # 2^31 numbers


def test_the_kernels_compile_without_spilling():
    pytest.importorskip("cuda.core", exc_type=ImportError)
    pytest.importorskip("cuda.bindings.nvrtc", exc_type=ImportError)
    ways = [(way, dtype) for way in ("forward", "backward") for dtype in cuda.DTYPES.values()]
    for architecture in (ARCHITECTURES[0], ARCHITECTURES[-1]):
        kernels = usage(compiler.source_file("max_pool"), 8, architecture)
        assert set(kernels) == {f"max_pool_{way}_{dtype}" for way, dtype in ways}
        for used in kernels.values():
            assert used.spilled_bytes == used.stack_bytes == 0
            assert used.registers <= 64  # for as many warps as hide the memory's latency


@pytest.mark.gpu
@pytest.mark.skipif(WITHOUT_GPU is not None, reason=WITHOUT_GPU or "")
@pytest.mark.parametrize("size", [*SIZES, (64, 32, 84, 84)], ids=str)
@EVERY_DTYPE
def test_on_a_gpu(size, dtype):
    x = pictures(size, dtype).cuda()
    assert has_kernel(x)
    assert_as_pytorch(x)
    torch.library.opcheck(torch.ops.fastweights.max_pool, (x.detach().requires_grad_(),))
