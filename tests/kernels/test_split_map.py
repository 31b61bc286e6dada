"""The kernel that splits and maps a slow net's rows, against PyTorch's operators in float64."""

import math

import pytest
import torch
from forks import Program
from kernel_cases import by_threads
from torch import Tensor

from fastweights.kernels import backend
from fastweights.kernels.machinery import direct_call
from fastweights.kernels.split_map import MAPS, Part, split_map

pytestmark = pytest.mark.compiler

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6}
SIZES = [1, 3, 4, 8, 16, 19, 32, 64, 130]  # less than a register, whole ones, and a remainder
ROWS = [(5, 2, 3), (2,), ()]


def parts_of(size: int) -> tuple[Part, ...]:
    """Return every map of one vector, of three vectors, and of a single number."""
    vectors = [Part(shape, name) for name in MAPS for shape in ((size,), (3, size))]
    return *vectors, *(Part((), name) for name in MAPS)


def rows(parts: tuple[Part, ...], *batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    width = sum(part.length for part in parts)
    numbers = 3 * torch.randn(*batch, width, generator=generator, dtype=torch.float64)
    # Near zero, float32 cannot tell the direction of a single number.
    return numbers + numbers.sign() / 2


def with_gradient(x: Tensor, parts: tuple[Part, ...]) -> list[Tensor]:
    """Return the parts of x, and the gradient of a fixed random weighting of all parts."""
    generator = torch.Generator().manual_seed(1)
    x = x.detach().requires_grad_()
    found = split_map(x, parts)
    weights = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in found]
    (grad,) = torch.autograd.grad(found, x, [w.to(x.dtype) for w in weights])
    return [*(y.detach() for y in found), grad]


def by_pytorch(x: Tensor, parts: tuple[Part, ...]) -> list[Tensor]:
    with backend("reference"):
        return with_gradient(x, parts)


@pytest.fixture
def only_the_kernel(monkeypatch):
    """Make the test fail if PyTorch's operators are called."""
    monkeypatch.setattr("fastweights.kernels.split_map._by_pytorch", None)


@pytest.mark.parametrize("batch", ROWS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_values_and_gradients_are_pytorchs(dtype, size, batch, monkeypatch):
    parts = parts_of(size)
    x = rows(parts, *batch)
    wanted = by_pytorch(x, parts)
    monkeypatch.setattr("fastweights.kernels.split_map._by_pytorch", None)
    found = with_gradient(x.to(dtype), parts)
    for mine, right in zip(found, wanted, strict=True):
        assert mine.dtype is dtype
        torch.testing.assert_close(mine.double(), right, atol=TOLERANCE[dtype], rtol=0)
    with torch.no_grad():
        inferred = split_map(x.to(dtype), parts)
    assert all(map(torch.equal, inferred, found))


@pytest.mark.parametrize("name", ["unit", "silu_unit"])
def test_a_vector_of_length_zero_has_no_direction(name, only_the_kernel):
    """The gradient is finite: that of x / sqrt(1e-6), halved by silu."""
    x = torch.zeros(2, 5, requires_grad=True)
    (y,) = split_map(x, (Part((5,), name),))
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(y, torch.zeros(2, 5))
    torch.testing.assert_close(grad, torch.full((2, 5), {"unit": 1e3, "silu_unit": 5e2}[name]))


def test_no_rows_and_no_numbers():
    parts = parts_of(3)
    *found, grad = with_gradient(rows(parts, 0, 2), parts)
    assert [y.shape for y in found] == [(0, 2, *part.shape) for part in parts]
    assert grad.shape == (0, 2, sum(part.length for part in parts))
    (empty,) = split_map(torch.zeros(3, 0), (Part((0, 5), "softmax"),))
    assert empty.shape == (3, 0, 5)
    empty, half = split_map(torch.zeros(3, 1), (Part((2, 0), "softmax"), Part((), "sigmoid")))
    assert empty.shape == (3, 2, 0) and torch.equal(half, torch.full((3,), 0.5))


def test_maps_are_what_they_are_called():
    """By hand: softmax of (0, ln 3), elu and its sum of (-ln 2, 1), the sigmoid of 0."""
    x = torch.tensor([0, math.log(3), *[-math.log(2), 1] * 2, 0])
    parts = Part((2,), "softmax"), Part((2,), "elu"), Part((2,), "elu_sum"), Part((), "sigmoid")
    soft, positive, whole, half = split_map(x, parts)
    torch.testing.assert_close(soft, torch.tensor([0.25, 0.75]))
    torch.testing.assert_close(positive, torch.tensor([0.5, 2.0]))
    torch.testing.assert_close(whole, torch.tensor([0.2, 0.8]), atol=1e-5, rtol=0)
    assert half == 0.5


@pytest.mark.usefixtures("only_the_kernel")
def test_rows_that_are_not_dense_are_read_as_they_are(monkeypatch):
    parts = parts_of(4)
    x = rows(parts, 3, 4)
    dense = with_gradient(x.transpose(0, 1).contiguous(), parts)
    for found, right in zip(with_gradient(x.transpose(0, 1), parts), dense, strict=True):
        assert torch.equal(found, right)
    y = split_map(x.requires_grad_(), parts)
    # An expanded gradient, and parts without a gradient.
    (grad,) = torch.autograd.grad(y[0].sum(), x)
    monkeypatch.undo()
    with backend("reference"):
        (wanted,) = torch.autograd.grad(split_map(x, parts)[0].sum(), x)
    torch.testing.assert_close(grad, wanted, atol=1e-12, rtol=0)


@pytest.mark.usefixtures("only_the_kernel")
def test_any_number_of_threads_gives_the_same_bits():
    parts = parts_of(16)
    x = rows(parts, 333).float()
    found = by_threads(lambda: with_gradient(x, parts), (1, 3))
    assert all(map(torch.equal, *found))


@pytest.mark.usefixtures("only_the_kernel")
def test_a_nan_spoils_its_own_vector_and_no_other():
    parts = Part((2, 5), "softmax"), Part((2, 5), "elu_sum"), Part((5,), "elu"), Part((), "sigmoid")
    x = rows(parts, 2)
    x[0, [1, 11, 21]] = float("nan")
    soft, whole, positive, strength = split_map(x, parts)
    for vectors in (soft, whole):
        assert vectors[0, 0].isnan().all()
        assert not vectors[0, 1].isnan().any() and not vectors[1].isnan().any()
    assert positive[0].isnan().tolist() == [False, True, False, False, False]
    assert not strength.isnan().any()


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        (name, float(bad))
        for name in MAPS
        for bad in ("nan", "inf", "-inf")
        if (name, bad) != ("silu_unit", "-inf")
    ],
)
def test_what_is_not_finite_is_so_where_pytorchs_is(name, bad):
    x, parts = torch.linspace(-2, 3, 8)[None], (Part((8,), name),)
    x[0, 2] = bad
    for one, other in zip(with_gradient(x, parts), by_pytorch(x, parts), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, atol=5e-6, rtol=1e-5)


@pytest.mark.usefixtures("only_the_kernel")
def test_minus_infinity_spoils_its_own_place_alone_in_silu_unit():
    x, parts = torch.linspace(-2, 3, 8)[None], (Part((8,), "silu_unit"),)
    x[0, 2] = float("-inf")
    (found,) = split_map(x, parts)
    assert found[0].isnan().tolist() == [place == 2 for place in range(8)]


@pytest.mark.usefixtures("only_the_kernel")
def test_large_inputs_stay_finite():
    parts = Part((3,), "softmax"), Part((3,), "elu_sum"), Part((3,), "sigmoid")
    x = torch.tensor([1e4, -1e4, 0.0] * 3)
    *values, grad = with_gradient(x, parts)
    assert all(value.isfinite().all() for value in (*values, grad))
    soft, whole, strength = (
        torch.tensor(numbers)
        for numbers in ([1.0, 0, 0], [10001 / 10002, 0, 1 / 10002], [1, 0, 0.5])
    )
    for found, right in zip(values, (soft, whole, strength), strict=True):
        torch.testing.assert_close(found, right, atol=1e-7, rtol=0)


def test_first_and_second_derivatives():
    parts = parts_of(2)
    x = rows(parts, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: split_map(x, parts), x)
    assert torch.autograd.gradgradcheck(lambda x: split_map(x, parts), x)


class NoGradient(torch.autograd.Function):
    """Returns its inputs and gives them no gradient."""

    @staticmethod
    def forward(ctx, *given: Tensor) -> tuple[Tensor, ...]:
        return tuple(each.clone() for each in given)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> tuple[None, ...]:
        return (None,) * len(grads)


@pytest.mark.usefixtures("only_the_kernel")
def test_parts_without_a_gradient(monkeypatch):
    """If no part has a gradient, there is none; if some parts have, the others count as zero."""
    parts = Part((2,), "elu"), Part((2,)), Part((), "sigmoid")
    x = torch.ones(3, 5, requires_grad=True)
    nothing = sum(part.sum() for part in NoGradient.apply(*split_map(x, parts)))
    assert torch.autograd.grad(nothing, x, allow_unused=True) == (None,)
    dirty = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: dirty(*a, **k).fill_(float("nan")))
    (grad,) = torch.autograd.grad(split_map(x, parts)[1].sum(), x)
    assert grad.tolist() == [[0, 0, 1, 1, 0]] * 3


@pytest.mark.usefixtures("only_the_kernel")
def test_results_fill_their_memory_and_negations_are_not_put_off(monkeypatch):
    parts = parts_of(5)
    x = rows(parts, 3)
    right = split_map(x, parts)
    dirty = Tensor.new_empty
    monkeypatch.setattr(Tensor, "new_empty", lambda *a: dirty(*a).fill_(float("nan")))
    assert all(map(torch.equal, split_map(x, parts), right))
    leaf = x.requires_grad_()
    negated = [torch.complex(y, -y).detach().conj().imag for y in right]
    assert negated[0].is_neg()
    found = torch.autograd.grad(split_map(leaf, parts), leaf, negated)
    assert torch.equal(*found, *torch.autograd.grad(split_map(leaf, parts), leaf, right))


def test_a_put_off_negation_of_rows_is_read():
    parts = parts_of(3)
    x = rows(parts, 2)
    negated = torch.complex(x, -x).conj().imag
    assert negated.is_neg()
    for found, right in zip(split_map(negated, parts), split_map(x, parts), strict=True):
        torch.testing.assert_close(found, right, atol=1e-12, rtol=0)


def test_batched_gradients_are_pytorchs():
    parts = parts_of(3)
    x = rows(parts, 2).requires_grad_()
    grads = [torch.eye(part.length).double().view(-1, *part.shape) for part in parts]
    for place, grad in enumerate(grads):
        batch = grad.unsqueeze(1).expand(-1, 2, *parts[place].shape)
        for numbers in (batch, batch.contiguous()):
            y = split_map(x, parts)[place]
            (found,) = torch.autograd.grad(y, x, numbers, is_grads_batched=True)
            single = [torch.autograd.grad(split_map(x, parts)[place], x, g)[0] for g in numbers]
            torch.testing.assert_close(found, torch.stack(single), atol=1e-12, rtol=0)


def test_transforms_go_to_pytorch(monkeypatch):
    parts = Part((4,), "elu_sum"), Part((4,), "softmax"), Part((), "sigmoid")
    x = rows(parts, 3)
    expected = split_map(x, parts)
    monkeypatch.setattr("fastweights.kernels.split_map._forward", None)
    for found, right in zip(
        torch.func.vmap(lambda row: split_map(row, parts))(x), expected, strict=True
    ):
        torch.testing.assert_close(found, right)
    _, slopes = torch.func.jvp(lambda x: split_map(x, parts)[2], (x,), (torch.ones_like(x),))
    torch.testing.assert_close(slopes, expected[2] * (1 - expected[2]))


COMPILED = """
import torch
from fastweights.cores import build_core
from fastweights.kernels import split_map

core = build_core("delta_delta", 5, layers=1, width=16, heads=2)  # splits twice
x, state, is_first = torch.randn(9, 3, 5), core.initial_state(3), torch.zeros(9, 3).bool()
expected, _ = core.unroll(x, state, is_first)
split_map._forward = None  # a graph has PyTorch's operators
compiled = torch.compile(core.unroll, backend="aot_eager", fullgraph=True)
torch.testing.assert_close(compiled(x, state, is_first)[0], expected)
"""


def test_torch_compile_of_a_core():
    found = Program(COMPILED).end()
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype, only_the_kernel):
    """Results are the kernel's values and gradients in float32, rounded to half precision."""
    parts = parts_of(5)
    x = rows(parts, 3).to(dtype).requires_grad_()
    wide = x.detach().float().requires_grad_()
    found, exact = split_map(x, parts), split_map(wide, parts)
    given = [torch.randn_like(y) for y in found]
    (grad,) = torch.autograd.grad(found, x, given)
    (of_wide,) = torch.autograd.grad(exact, wide, [each.float() for each in given])
    for ours, right in zip([*found, grad], [*exact, of_wide], strict=True):
        assert ours.dtype is dtype
        assert torch.equal(ours, right.to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_no_worse_than_pytorchs(dtype):
    parts = parts_of(5)
    x = rows(parts, 3).to(dtype)
    right = by_pytorch(x.double(), parts)
    for ours, theirs, exact in zip(
        with_gradient(x, parts), by_pytorch(x, parts), right, strict=True
    ):
        of_ours, of_theirs = ((each.double() - exact).abs().max() for each in (ours, theirs))
        assert of_ours <= of_theirs


def test_without_a_map_nothing_is_copied():
    x = torch.randn(3, 5)
    vector, number = split_map(x, (Part((4,)), Part(())))
    assert vector.data_ptr() == x.data_ptr() and number.data_ptr() == x[0, 4:].data_ptr()


def test_without_a_compiler_pytorch_runs(monkeypatch):
    parts = parts_of(5)
    x = rows(parts, 2)
    monkeypatch.setattr(direct_call, "is_there", lambda *call: False)
    for found, right in zip(with_gradient(x, parts), by_pytorch(x, parts), strict=True):
        assert torch.equal(found, right)


def test_wrong_parts_are_refused():
    with pytest.raises(ValueError, match="rows of 4 numbers do not split into"):
        split_map(torch.zeros(2, 4), (Part((3,)),))
    with pytest.raises(ValueError, match="unknown map 'relu'; known: softmax, elu_sum, elu, "):
        Part((4,), "relu")
