"""The CUDA source of max-pooling, run on the CPU, against PyTorch: values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from cuda_needs import NEEDS_GPU, need_nvrtc
from cuda_shim import ASCENDING, DESCENDING, SHUFFLED
from torch import Tensor

from fastweights import kernels
from fastweights.agents.network import Network, NetworkConfig
from fastweights.kernels.cuda import compiler, launch
from fastweights.kernels.cuda.registers import ARCHITECTURES, usage
from fastweights.kernels.pictures import max_pool as package
from fastweights.kernels.pictures.max_pool import cuda, has_kernel, max_pool

SIZES = [(3, 16, 21, 21), (2, 32, 7, 4), (1, 8, 1, 1), (2, 8, 2, 3), (5, 24, 6, 5)]
DTYPES = [torch.float32, torch.bfloat16]
EVERY_SIZE = pytest.mark.parametrize("size", SIZES, ids=str)
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def pictures(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return pictures with few different values, so that windows have several equal maxima."""
    x = torch.randint(-4, 5, size, generator=torch.Generator().manual_seed(0))
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


def expected(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, stride=2, padding=1)


def whole_numbers(y: Tensor) -> Tensor:
    """Return gradients whose sums of four are exact in every dtype."""
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
    """Let CPU tensors take the CUDA path without the driver; check that a kernel was launched."""
    monkeypatch.setitem(package.RUN, "cpu", cuda.run)
    yield shim
    assert shim.launched


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


def test_bfloat16_gradients_are_rounded_once(emulated):
    x = pictures((4, 16, 20, 20), torch.bfloat16).requires_grad_()
    y = max_pool(x)
    grad = torch.randn(y.shape).bfloat16()
    grad[0, 0] = float("nan")
    (found,) = torch.autograd.grad(y, x, grad)
    double = x.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(expected(double), double, grad.double())
    torch.testing.assert_close(found, exact.float().bfloat16(), equal_nan=True, atol=0, rtol=0)


@EVERY_DTYPE
def test_views_that_begin_where_packs_cannot_be_read(emulated, dtype, monkeypatch):
    """Unaligned pictures and gradients are copied to addresses that the kernel can read."""
    run, addresses = launch.run_on_device, []

    def noted(kernel, head_size, blocks, threads, words, device):
        addresses.extend(words[4:])
        run(kernel, head_size, blocks, threads, words, device)

    monkeypatch.setattr(launch, "run_on_device", noted)

    def shifted(size: tuple[int, ...]) -> Tensor:
        count, channels, height, width = size
        memory = torch.randint(-4, 5, (1 + count * channels * height * width,)).to(dtype)
        x = memory[1:].view(count, height, width, channels).permute(0, 3, 1, 2)
        assert x.data_ptr() % 16 and x.is_contiguous(memory_format=torch.channels_last)
        return x

    x = shifted((2, 8, 6, 6))
    y, wanted, grad = max_pool(x.requires_grad_()), expected(x), shifted((2, 8, 3, 3))
    assert torch.equal(y, wanted)
    assert torch.equal(*torch.autograd.grad(y, x, grad), *torch.autograd.grad(wanted, x, grad))
    assert len(addresses) == 6 and not any(address % 8 for address in addresses)
    # The other addresses are of the winners' places, in bytes.
    of_numbers = [addresses[i] for i in (0, 1, 3, 5)]
    assert not any(address % 16 for address in of_numbers)


def test_no_pictures_are_no_launch(shim, monkeypatch):
    monkeypatch.setitem(package.RUN, "cpu", cuda.run)
    empty = torch.zeros((0, 8, 6, 6)).contiguous(memory_format=torch.channels_last)
    y = torch.ops.fastweights.max_pool(empty.requires_grad_())[0]
    assert y.shape == (0, 8, 3, 3)
    assert torch.autograd.grad(y.sum(), empty)[0].shape == empty.shape
    assert not shim.launched


@pytest.mark.parametrize(
    ("size", "dtype", "says"),
    [
        ((2, 6, 5, 5), torch.float32, "6 channels are not a multiple of 4"),
        ((2, 4, 5, 5), torch.bfloat16, "4 channels are not a multiple of 8"),
        ((2, 8, 5, 5), torch.float64, "compute in torch.float32 and torch.bfloat16, not in"),
        ((2, 8, 5, 5), torch.float16, "not in torch.float16"),
        ((2**17, 16, 32, 32), torch.bfloat16, "2,147,483,648 numbers, not fewer than"),
    ],
)
def test_pictures_without_a_kernel_are_pytorchs_and_the_operator_says_why(
    size, dtype, says, monkeypatch
):
    monkeypatch.setattr(cuda, "is_there", lambda device: True)
    x = torch.empty(size, dtype=dtype, device="meta", memory_format=torch.channels_last)
    assert not cuda.takes(x)
    assert cuda.takes(x[:2, :1].expand(2, 8, *size[2:]).to(torch.float32))
    with pytest.raises(ValueError, match=says):
        cuda.run("forward", size, (torch.empty(1, dtype=dtype), None, None))


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that torch and the compiler's package have a GPU."""
    monkeypatch.setattr(launch, "unavailable", lambda device: None)
    launch.why_not_loaded.cache_clear()
    yield torch.device("cuda:0")
    launch.why_not_loaded.cache_clear()


def test_kernels_are_loaded_once_before_the_first_call(gpu, monkeypatch):
    loaded = []
    monkeypatch.setattr(launch, "load", lambda *call: loaded.append(call))
    assert cuda.is_there(gpu) and cuda.is_there(gpu)
    assert {kernel.name for kernel, *_ in loaded} == {
        f"{way}_{dtype}" for way in ("forward", "backward") for dtype in ("float32", "bfloat16")
    }
    assert len(loaded) == 4
    for name in ("reference", "chunked", "cpu"):
        with kernels.backend(name):
            assert not cuda.is_there(gpu)


def test_kernels_that_cannot_be_loaded_leave_pytorchs(gpu, monkeypatch, caplog):
    def load(*call):
        raise RuntimeError("no such architecture\nand more")

    monkeypatch.setattr(launch, "load", load)
    assert not cuda.is_there(gpu) and not cuda.is_there(gpu)
    (record,) = caplog.records
    assert record.getMessage().endswith("its kernels cannot be loaded: no such architecture")


def test_the_kernels_compile_without_spilling():
    need_nvrtc()
    ways = [(way, dtype) for way in ("forward", "backward") for dtype in cuda.DTYPES.values()]
    for architecture in ARCHITECTURES:
        kernels = usage(compiler.source_file("pictures/max_pool"), 8, architecture)
        assert set(kernels) == {f"max_pool_{way}_{dtype}" for way, dtype in ways}
        for used in kernels.values():
            assert used.spilled_bytes == used.stack_bytes == 0
            assert used.registers <= 64  # allows enough warps to hide the memory's latency


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("size", [*SIZES, (64, 32, 84, 84)], ids=str)
@EVERY_DTYPE
def test_on_a_gpu(size, dtype):
    x = pictures(size, dtype).cuda()
    assert has_kernel(x)
    assert_as_pytorch(x)
    if size in SIZES:
        torch.library.opcheck(torch.ops.fastweights.max_pool, (x.detach().requires_grad_(),))


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_agents_stem_takes_it_on_a_gpu(precision, monkeypatch):
    what = {"core": "lstm", "stem": "resnet", "precision": precision}
    stem = Network(NetworkConfig(frame_shape=(4, 84, 84), num_actions=6, **what)).stem.cuda()
    monkeypatch.setattr(F, "max_pool2d", None)  # PyTorch must not be called
    frames = torch.randint(0, 256, (5, 4, 84, 84), dtype=torch.uint8, device="cuda")
    with torch.no_grad():
        acting = stem(frames)
    learning = stem(frames)
    torch.testing.assert_close(acting, learning.detach())
    learning.float().sum().backward()
    assert all(weight.grad.isfinite().all() for weight in stem.parameters())
