"""The stem's max-pooling against PyTorch's: values and gradients are exactly equal."""

import pytest
import torch
import torch.nn.functional as F
from kernel_cases import by_threads
from torch import Tensor

from fastweights.kernels import backend
from fastweights.kernels.pictures.max_pool import max_pool

pytestmark = pytest.mark.compiler

SIZES = [(3, 16, 84, 84), (2, 32, 21, 21), (2, 5, 7, 4), (1, 33, 1, 1), (2, 16, 2, 3), (1, 1, 6, 5)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def pictures(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return pictures with few different values, so that windows have several equal maxima."""
    x = torch.randint(-4, 5, size, generator=torch.Generator().manual_seed(0))
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


def expected(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, stride=2, padding=1)


@pytest.fixture(autouse=True)
def force_the_kernel(monkeypatch):
    """Make the test fail if PyTorch's max-pooling is called."""
    monkeypatch.setattr(F, "max_pool2d", None)


@pytest.fixture
def pytorch(monkeypatch):
    monkeypatch.undo()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_pytorchs(dtype, size, monkeypatch):
    x = pictures(size, dtype)
    with torch.no_grad():
        inferred = max_pool(x)
    learned = max_pool(x.requires_grad_())
    monkeypatch.undo()
    assert torch.equal(inferred, expected(x))
    assert torch.equal(learned, expected(x))
    assert inferred.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_go_to_pytorchs_winners(dtype, size, monkeypatch):
    x = pictures(size, dtype).requires_grad_()
    y = max_pool(x)
    # Sums of up to four whole numbers are exact in every dtype.
    grad = torch.randint(-4, 5, y.shape).to(dtype)
    (found,) = torch.autograd.grad(y, x, grad)
    monkeypatch.undo()
    wanted = torch.autograd.grad(expected(x), x, grad)
    assert torch.equal(found, *wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_wins_and_minus_infinity_loses(dtype, monkeypatch):
    x = pictures((2, 16, 9, 9), dtype)
    x[0, 3, 4, 4] = float("nan")
    x[1] = -torch.inf
    y = max_pool(x.requires_grad_())
    grads = torch.autograd.grad(y, x, torch.ones_like(y))
    monkeypatch.undo()
    torch.testing.assert_close(y, expected(x), equal_nan=True, atol=0, rtol=0)
    wanted = torch.autograd.grad(expected(x), x, torch.ones_like(y))
    torch.testing.assert_close(grads, wanted, atol=0, rtol=0)


def test_bfloat16_gradients_are_rounded_once(monkeypatch):
    x = pictures((4, 16, 20, 20), torch.bfloat16).requires_grad_()
    y = max_pool(x)
    grad = torch.randn(y.shape).bfloat16()
    (found,) = torch.autograd.grad(y, x, grad)
    monkeypatch.undo()
    double = x.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(expected(double), double, grad.double())
    assert torch.equal(found, exact.float().bfloat16())


def test_a_nan_gradient_stays_one():
    x = pictures((1, 16, 4, 4), torch.bfloat16).requires_grad_()
    y = max_pool(x)
    (found,) = torch.autograd.grad(y, x, torch.full_like(y, float("nan")))
    assert found.isnan().any()
    assert not found.isinf().any()


def test_any_number_of_threads_gives_the_same():
    x = pictures((5, 16, 20, 20), torch.float32).requires_grad_()

    def run() -> list[Tensor]:
        y = max_pool(x)
        return [y.detach(), *torch.autograd.grad(y.sum(), x)]

    assert all(map(torch.equal, *by_threads(run, (1, 3))))


def test_operator_is_registered_as_pytorch_expects():
    for dtype in DTYPES:
        x = pictures((2, 5, 7, 4), dtype).requires_grad_()
        torch.library.opcheck(torch.ops.fastweights.max_pool, (x,))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_other_layouts_and_forced_references_are_pytorchs(layout, pytorch):
    x = pictures((2, 16, 9, 9), torch.float32).contiguous(memory_format=layout)
    with backend("reference"):
        assert torch.equal(max_pool(x), expected(x))
    assert torch.equal(max_pool(x), expected(x))


def test_a_second_derivative_names_the_reference():
    x = pictures((2, 16, 4, 4), torch.float32).requires_grad_()
    (grad,) = torch.autograd.grad(max_pool(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r'kernels\.backend\("reference"\)'):
        grad.sum().backward()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_transforms_and_forward_mode_are_pytorchs(pytorch):
    x = pictures((3, 16, 5, 6), torch.float64)
    assert torch.equal(torch.func.vmap(lambda one: max_pool(one[None])[0])(x), max_pool(x))
    direction = torch.randn_like(x)
    _, found = torch.func.jvp(max_pool, (x,), (direction,))
    _, wanted = torch.func.jvp(expected, (x,), (direction,))
    assert torch.equal(found, wanted) and found.any()


def test_no_pictures(pytorch):
    assert max_pool(torch.zeros(0, 16, 8, 8)).shape == (0, 16, 4, 4)
