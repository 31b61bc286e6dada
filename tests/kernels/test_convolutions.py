"""The image stem's convolutions against PyTorch's: pooled convolutions and residual units."""

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from kernel_cases import by_threads
from torch import Tensor

from fastweights.kernels import backend
from fastweights.kernels.pictures import convolve_pool, residual_unit
from fastweights.kernels.pictures import images as pictures

pytestmark = pytest.mark.compiler

Case = tuple[Callable[..., Tensor], list[Tensor]]
# Pictures, input and output channels, height, width. Whole and cut tiles, a single pixel, more
# pictures than groups.
SIZES = [
    (2, 16, 32, 42, 42),
    (3, 32, 16, 11, 7),
    (1, 16, 16, 1, 1),
    (2, 48, 16, 3, 5),
    (37, 16, 16, 4, 2),
    (2, 16, 32, 21, 21),  # more rows of tiles than fit into whole bands
    (1, 16, 16, 4, 100),  # more tiles across than a band takes
]
PIXEL_SIZES = [
    (2, 4, 16, 84, 84),
    (3, 3, 32, 9, 6),
    (1, 1, 16, 1, 1),
    (2, 16, 16, 5, 8),
    (37, 2, 16, 2, 3),
]
UNIT_SIZES = [(size[0], *size[2:]) for size in SIZES]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


def weight(outputs: int, inputs: int) -> Tensor:
    return torch.randn(outputs, inputs, 3, 3).double() / (3 * inputs**0.5)


def numbers(*size: int) -> Tensor:
    return torch.randn(size).double().contiguous(memory_format=torch.channels_last)


def stage(count: int, inputs: int, outputs: int, *size: int) -> Case:
    x = numbers(count, inputs, *size)
    return convolve_pool.convolve_pool, [x, weight(outputs, inputs), torch.randn(outputs).double()]


def pixel_stage(count: int, inputs: int, outputs: int, *size: int) -> Case:
    x = torch.randint(0, 256, (count, inputs, *size), dtype=torch.uint8)
    small = weight(outputs, inputs) / 255
    return convolve_pool.convolve_pool, [x, small, torch.randn(outputs).double()]


def unit(count: int, channels: int, *size: int) -> Case:
    weights = [weight(channels, channels), torch.randn(channels).double()]
    again = [weight(channels, channels), torch.randn(channels).double()]
    return residual_unit.residual_unit, [numbers(count, channels, *size), *weights, *again]


KINDS = [(stage, SIZES), (pixel_stage, PIXEL_SIZES), (unit, UNIT_SIZES)]
CASES = [
    pytest.param(make, size, id=f"{make.__name__}-{size}")
    for make, sizes in KINDS
    for size in sizes
]
SMALL = [(stage, (2, 16, 16, 4, 5)), (pixel_stage, (2, 2, 16, 5, 4)), (unit, (2, 16, 4, 5))]
SMALL_CASES = [pytest.param(make, size, id=make.__name__) for make, size in SMALL]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def as_dtype(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Convert tensors to `dtype` with gradients; pixels remain pixels."""
    return [
        each if each.dtype is torch.uint8 else each.detach().to(dtype).requires_grad_()
        for each in tensors
    ]


def with_gradients(function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    y = function(*tensors)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    wanted = [each for each in tensors if each.requires_grad]
    return [y.detach(), *torch.autograd.grad(y, wanted, grad)]


def expected(make: Callable[..., Case], size: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    with backend("reference"):
        function, tensors = make(*size)
        return with_gradients(function, as_dtype(tensors, torch.float64))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("make", "size"), CASES)
def test_values_and_gradients_are_pytorchs(make, size, dtype, monkeypatch):
    wanted = expected(make, size)
    monkeypatch.setattr(F, "conv2d", None)  # PyTorch must not be called
    torch.manual_seed(0)
    function, tensors = make(*size)
    tensors = as_dtype(tensors, dtype)
    found = with_gradients(function, tensors)
    with torch.no_grad():
        assert torch.equal(function(*tensors), found[0])
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    for mine, right in zip(found, wanted, strict=True):
        scale = float(right.abs().max().clamp_min(1.0))
        torch.testing.assert_close(mine.double(), right, atol=TOLERANCE[dtype] * scale, rtol=0)


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_gradcheck(make, size):
    function, tensors = make(*size)
    tensors = as_dtype(tensors, torch.float64)
    assert torch.autograd.gradcheck(function, tensors, fast_mode=True)


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_batched_gradients(make, size):
    function, tensors = make(*size)
    tensors = as_dtype(tensors, torch.float64)
    wanted, y = [each for each in tensors if each.requires_grad], function(*tensors)
    grads = torch.randn(2, *y.shape).double()
    kept = {"retain_graph": True}
    found = torch.autograd.grad(y, wanted, grads, is_grads_batched=True, **kept)
    expected = [torch.autograd.grad(y, wanted, grad, **kept) for grad in grads]
    for mine, right in zip(found, map(torch.stack, zip(*expected, strict=True)), strict=True):
        torch.testing.assert_close(mine, right)


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_any_number_of_threads_gives_the_same_bits(make, size):
    function, tensors = make(67, *size[1:])
    tensors = as_dtype(tensors, torch.float32)
    found = by_threads(lambda: with_gradients(function, tensors), (1, 3))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize(("make", "size"), [SMALL_CASES[0], SMALL_CASES[2]])
def test_a_nan_spoils_its_own_picture_and_the_weights_alone(make, size):
    function, tensors = make(3, *size[1:])
    tensors = as_dtype(tensors, torch.float32)
    clean, clean_grad, *_ = with_gradients(function, tensors)
    with torch.no_grad():
        tensors[0][1, 3, 2, 2] = torch.nan
    y, grad, *of_weights = with_gradients(function, tensors)
    assert y[1].isnan().any()
    assert of_weights[0].isnan().any()
    assert torch.equal(y[::2], clean[::2])
    assert torch.equal(grad[::2], clean_grad[::2])


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_a_nan_among_the_weights_is_never_lost(make, size):
    function, tensors = make(*size)
    tensors = as_dtype(tensors, torch.float32)
    with torch.no_grad():
        tensors[1][:, 0, 1, 1] = torch.nan
    assert function(*tensors)[:, :, 1:-1, 1:-1].isnan().all()
    with torch.no_grad():
        tensors[2][:] = torch.nan
    assert function(*tensors).isnan().all()


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_operators_are_registered_as_pytorch_expects(make, size):
    function, tensors = make(*size)
    name = function.__name__ + ("_pixels" if make is pixel_stage else "")
    tensors = as_dtype(tensors, torch.float32)
    torch.library.opcheck(getattr(torch.ops.fastweights, name), tensors)


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_what_no_kernel_takes_is_pytorchs(make, size):
    """Half precision, autocast, another layout, and a forced reference."""
    function, tensors = make(*size)
    tensors = as_dtype(tensors, torch.float32)
    with backend("reference"):
        right = function(*tensors)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(function(*tensors).float(), right, atol=0.1, rtol=0.02)
    halves = as_dtype(tensors, torch.bfloat16)
    torch.testing.assert_close(function(*halves).float(), right, atol=0.1, rtol=0.02)
    last = torch.contiguous_format if tensors[0].dtype is not torch.uint8 else torch.channels_last
    other = tensors[0].detach().contiguous(memory_format=last)
    torch.testing.assert_close(function(other, *tensors[1:]), right)


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_a_second_derivative_names_the_reference(make, size):
    function, tensors = make(*size)
    tensors = as_dtype(tensors, torch.float32)
    y = function(*tensors)
    (grad,) = torch.autograd.grad(y.square().sum(), tensors[1], create_graph=True)
    with pytest.raises(RuntimeError, match=r'kernels\.backend\("reference"\)'):
        grad.sum().backward()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_transforms_and_forward_mode_are_pytorchs(make, size):
    function, (x, weight, *rest) = make(*size)
    direction = torch.ones_like(weight)
    with torch.no_grad():
        _, found = torch.func.jvp(lambda w: function(x, w, *rest), (weight,), (direction,))
    step = 1e-6 * direction
    around = function(x, weight + step, *rest) - function(x, weight - step, *rest)
    torch.testing.assert_close(found, around / 2e-6, atol=1e-6, rtol=1e-4)
    grad = torch.func.grad(lambda w: function(x, w, *rest).square().sum())(weight)
    weight.requires_grad_()
    wanted = torch.autograd.grad(function(x, weight, *rest).square().sum(), weight)
    torch.testing.assert_close(grad, *wanted)
    each = torch.func.vmap(lambda one: function(one[None], weight, *rest)[0])(x)
    torch.testing.assert_close(each, function(x, weight, *rest))


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_a_layout_that_is_lost_on_the_way_does_not_matter(make, size):
    """Tensors saved for the backward pass may return in another layout, such as from a disk."""
    function, tensors = make(*size)
    tensors = as_dtype(tensors, torch.float32)
    wanted = with_gradients(function, tensors)
    keep = torch.autograd.graph.saved_tensors_hooks(torch.Tensor.contiguous, lambda kept: kept)
    with keep:
        found = with_gradients(function, tensors)
    assert all(map(torch.equal, found, wanted))
    name = function.__name__ + ("_pixels" if make is pixel_stage else "")
    with torch.no_grad():
        x = tensors[0].detach()
        last = x.is_contiguous(memory_format=torch.channels_last)
        other = torch.contiguous_format if last else torch.channels_last
        moved = x.contiguous(memory_format=other)
        y = getattr(torch.ops.fastweights, name)(moved, *tensors[1:])[0]
    assert torch.equal(y, wanted[0])


@pytest.mark.parametrize(
    ("make", "size"),
    [(stage, (2, 5, 6, 7, 8)), (unit, (2, 5, 7, 8)), (pixel_stage, (2, 17, 16, 7, 8))],
)
def test_odd_numbers_of_channels_are_left_to_pytorch(make, size):
    wanted = expected(make, size)
    torch.manual_seed(0)
    function, tensors = make(*size)
    found = with_gradients(function, as_dtype(tensors, torch.float64))
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_no_pictures(make, size):
    function, tensors = make(0, *size[1:])
    found = with_gradients(function, as_dtype(tensors, torch.float32))
    assert found[0].shape[0] == 0
    assert all(not grad.any() for grad in found[1:])
    name = function.__name__ + ("_pixels" if make is pixel_stage else "")
    found = with_gradients(
        lambda *given: getattr(torch.ops.fastweights, name)(*given)[0],
        as_dtype(tensors, torch.float32),
    )
    assert all(not grad.any() for grad in found[1:])


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_the_way_back_is_the_way_there(make, size):
    """The forward's backend also runs the backward; gaps between a bias's numbers do not matter."""
    function, tensors = make(*size)
    tensors = as_dtype(tensors, torch.float32)
    wanted = with_gradients(function, tensors)
    apart = torch.stack([tensors[2].detach()] * 2, 1)[:, 0].requires_grad_()
    y = function(*tensors[:2], apart, *tensors[3:])
    with backend("reference"):
        grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
        (found,) = torch.autograd.grad(y, tensors[1], grad)
    assert torch.equal(y, wanted[0])
    assert torch.equal(found, wanted[1 if make is pixel_stage else 2])


@pytest.mark.parametrize(("make", "size"), SMALL_CASES)
def test_weights_that_do_not_fit_are_refused(make, size):
    function, (x, right, bias, *rest) = make(*size)
    wrong = torch.zeros(16, 16, 5, 5).double(), torch.zeros(16, 3, 3, 3).double()
    for weight in wrong:
        with pytest.raises(ValueError, match=r"3, 3|3 3"):
            function(x, weight, bias, *rest)
    with pytest.raises(ValueError):
        function(x, right, bias[:5], *rest)
    with pytest.raises(ValueError, match=r"need weights \[D, .*, 3, 3\] and a bias \[D\], got"):
        pictures.check(x, wrong[0], bias)
