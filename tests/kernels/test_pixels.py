"""Pixels as a convolution's numbers: the kernel's are PyTorch's, bit for bit."""

import pytest
import torch
from kernel_cases import by_threads
from torch import Tensor

from fastweights.kernels import backend
from fastweights.kernels.pictures.pixels import as_numbers, has_kernel

SIZES = [(260, 4, 84, 84), (3, 1, 84, 84), (2, 3, 21, 5), (5, 12, 7, 9), (1, 2, 1, 1)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def case(size: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return pixels with every value of a byte, if there are enough, and a convolution's weight."""
    pixels = torch.randint(0, 256, size, generator=torch.Generator().manual_seed(0))
    weight = torch.zeros(16, size[1], 3, 3, dtype=dtype)
    return pixels.to(torch.uint8), weight.to(memory_format=torch.channels_last)


def expected(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    return pixels.to(dtype).contiguous(memory_format=torch.channels_last)


@pytest.mark.compiler
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_pytorchs(dtype, size):
    pixels, weight = case(size, dtype)
    assert has_kernel(pixels, weight)
    found = as_numbers(pixels, weight)
    assert found.dtype is dtype and torch.equal(found, expected(pixels, dtype))
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.compiler
def test_numbers_are_where_the_pixels_are():
    pixels, weight = case(SIZES[2])
    with torch.device("meta"):
        found = as_numbers(pixels, weight)
    assert torch.equal(found, expected(pixels, torch.float32))


@pytest.mark.compiler
def test_autocast_chooses_the_dtype():
    pixels, weight = case(SIZES[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert has_kernel(pixels, weight)
        found = as_numbers(pixels, weight)
        doubles = as_numbers(pixels, weight.double())
    assert found.dtype is torch.bfloat16 and torch.equal(found, expected(pixels, torch.bfloat16))
    assert doubles.dtype is torch.float64  # autocast does not change it


@pytest.mark.compiler
def test_any_number_of_threads():
    pixels, weight = case(SIZES[0])
    for found in by_threads(lambda: as_numbers(pixels, weight), (1, 2, 3)):
        assert torch.equal(found, expected(pixels, torch.float32))


def apart(pixels: Tensor) -> Tensor:
    """Return the same pixels, every second of a larger tensor."""
    return torch.stack([pixels, 255 - pixels], -1)[..., 0]


@pytest.mark.parametrize(
    "change",
    [apart, lambda x: x.contiguous(memory_format=torch.channels_last), lambda x: x[:0]],
    ids=["gaps", "channels last", "none"],
)
def test_other_pixels_are_pytorchs(change):
    pixels, weight = case((3, 4, 6, 5))
    pixels = change(pixels)
    assert not has_kernel(pixels, weight)
    assert torch.equal(as_numbers(pixels, weight), expected(pixels, torch.float32))


def test_contiguous_weights_get_contiguous_numbers():
    pixels, weight = case((3, 4, 6, 5))
    assert not has_kernel(pixels, weight.contiguous())
    assert as_numbers(pixels, weight.contiguous()).is_contiguous()


def test_what_traces_sees_pytorchs_operations():
    pixels, weight = case((3, 4, 6, 5))
    graph = torch.fx.experimental.proxy_tensor.make_fx(as_numbers)(pixels, weight)
    other = 255 - pixels
    assert torch.equal(graph(other, weight), expected(other, torch.float32))


def test_the_reference_has_no_kernel():
    with backend("reference"):
        assert not has_kernel(*case((3, 4, 6, 5)))


def test_numbers_stay_as_they_are():
    x = torch.rand(2, 4, 6, 5)
    assert as_numbers(x, torch.zeros(16, 4, 3, 3)) is x
