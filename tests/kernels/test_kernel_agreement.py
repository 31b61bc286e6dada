"""Each backend against the reference in float64: every output and every gradient, by name."""

import pytest
import torch
from kernel_cases import BACKEND_CASES, CASES, assert_agree, example, truth

from fastweights import kernels
from fastweights.kernels.feature_maps import STRENGTH_MAPS
from fastweights.kernels.machinery import cpu_call
from fastweights.kernels.machinery.example import Example, make
from fastweights.kernels.registry import OPERATIONS

OBLONG = [name for name, each in OPERATIONS.items() if each.backends["cpu"].kernel.oblong]


@pytest.fixture(autouse=True)
def _outputs_start_as_nan(monkeypatch):
    def poisoned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.fill_(float("nan"))

    monkeypatch.setattr(cpu_call, "allocate_like", lambda like: poisoned(torch.empty_like(like)))


# Of 8, 16, 32 and 64 lanes, in use or padding.
@pytest.mark.parametrize("size", [1, 16, 17, 32, 64])
@pytest.mark.parametrize(("name", "options", "backend"), BACKEND_CASES)
def test_outputs_and_gradients(name, options, backend, size):
    case = example(name, size, **options)
    with kernels.backend(backend):
        found = case.to(torch.float32).run_with_gradients()
    assert_agree(found, truth(case), 1e-5)


@pytest.mark.parametrize(("name", "options", "backend"), BACKEND_CASES)
def test_different_key_and_value_sizes(name, options, backend):
    for keys, values in ((5, 3), (3, 8)):
        case = example(name, keys, values, **options)
        with kernels.backend(backend):
            found = case.to(torch.float32).run_with_gradients()
        assert_agree(found, truth(case), 1e-5)


@pytest.mark.compiler
@pytest.mark.parametrize("sizes", [(128, 32), (32, 97), (65, 1)])
@pytest.mark.parametrize("name", OBLONG)
def test_oblong_and_wide_heads(name, sizes):
    """Keys and values are padded separately."""
    case = example(name, *sizes)
    with kernels.backend("cpu"):
        found = case.to(torch.float32).run_with_gradients()
    assert_agree(found, truth(case), 1e-5)


@pytest.mark.parametrize(("name", "options", "backend"), BACKEND_CASES)
def test_long_unrolls_stay_exact(name, options, backend):
    """Recomputing earlier weights backwards over 300 steps and a few resets loses no precision."""
    mask = torch.rand(300, 2, generator=torch.Generator().manual_seed(3)) < 0.01
    sizes = {"T": 300, "B": 2, "H": 1, "K": 8, "V": 8, "D": 8}
    case = make(OPERATIONS[name], sizes, mask, **options)
    with kernels.backend(backend):
        found = case.to(torch.float32).run_with_gradients()
    assert_agree(found, truth(case), 1e-5)


@pytest.mark.compiler
@pytest.mark.parametrize("feature_map", ["elu", "identity", "unit", "silu_unit"])
@pytest.mark.parametrize("strength_map", STRENGTH_MAPS)
@pytest.mark.parametrize("name", ["recurrent_delta_rule", "self_referential"])
def test_every_feature_map(name, strength_map, feature_map):
    """Without keys of length one the recurrence is unstable: small inputs, few steps, in double."""
    case = example(name, 3, time=3, feature_map=feature_map, strength_map=strength_map)
    small = [t * 0.1 if t.is_floating_point() else t for t in case.tensors]
    case = Example(case.operation, small, case.options)
    with kernels.backend("cpu"):
        found = case.run_with_gradients()
    assert_agree(found, truth(case), 1e-12)


@pytest.mark.parametrize(("name", "options", "backend"), BACKEND_CASES)
def test_odd_strides(name, options, backend):
    """Slices, transposes and expanded axes give the same results as contiguous copies."""
    case = example(name, 5, **options).to(torch.float32)

    def scatter(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor.t().contiguous().t()
        wide = torch.full((*tensor.shape[:-1], tensor.shape[-1] + 3), float("nan"))
        wide[..., 1:-2] = tensor
        reversed_axes = list(range(tensor.ndim))[::-1]
        sliced = wide[..., 1:-2]
        return (
            sliced
            if tensor.ndim % 2
            else sliced.permute(reversed_axes).contiguous().permute(reversed_axes)
        )

    strange = Example(case.operation, [scatter(t) for t in case.tensors], case.options)
    assert any(not t.is_contiguous() for t in strange.tensors)
    with kernels.backend(backend):
        found = strange.run()
        expected = case.run()
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("name", "options", "backend"), BACKEND_CASES)
def test_gradients_of_one_step(name, options, backend):
    case = example(name, 5, time=1, **options)
    with kernels.backend(backend):
        found = case.to(torch.float32).run_with_gradients()
    assert_agree(found, truth(case), 1e-5)


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same numbers with their axes reversed in memory."""
    axes = list(range(tensor.ndim))[::-1]
    return tensor.permute(axes).contiguous().permute(axes)


def within(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same numbers as a part of a larger tensor that is NaN elsewhere."""
    wide = torch.full((*tensor.shape[:-1], tensor.shape[-1] + 3), float("nan")).to(tensor)
    wide[..., 1:-2] = tensor
    return wide[..., 1:-2]


def apart(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same numbers with a NaN after each."""
    return torch.stack([tensor, torch.full_like(tensor, float("nan"))], -1)[..., 0]


def negated(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same numbers as a view whose negation torch has deferred."""
    return torch.complex(torch.zeros_like(tensor), -tensor).conj().imag


@pytest.mark.parametrize("laid_out", [turned, within, apart, negated])
@pytest.mark.parametrize(("name", "options", "backend"), BACKEND_CASES)
def test_gradients_with_odd_strides(name, options, backend, laid_out):
    """Vary the layout of the call's tensors and of the incoming gradients."""
    case = example(name, 5, **options).to(torch.float32)
    strange = [
        laid_out(t) if t.is_floating_point() else t.t().contiguous().t() for t in case.tensors
    ]

    def gradients(tensors: list[torch.Tensor], layout) -> dict[str, torch.Tensor]:
        leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
        with kernels.backend(backend):
            outputs = case.run(leaves)
        incoming = [layout((output.detach() * 3).cos()) for output in outputs]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        return dict(enumerate(torch.autograd.grad(outputs, wanted, incoming)))

    assert_agree(gradients(strange, laid_out), gradients(case.tensors, torch.clone), 1e-5)


@pytest.mark.parametrize("time", [1, 7])
@pytest.mark.parametrize(("name", "options", "backend"), BACKEND_CASES)
def test_a_negation_that_was_put_off_is_seen(name, options, backend, time):
    """Defer the negation of each tensor in turn."""
    case = example(name, 1, time=time, **options).to(torch.float32)
    with kernels.backend(backend), torch.no_grad():
        expected = case.run()
        for place in case.operation.signature.differentiable:
            tensors = list(case.tensors)
            tensors[place] = negated(case.tensors[place])
            assert tensors[place].is_neg()
            for found, right in zip(case.run(tensors), expected, strict=True):
                torch.testing.assert_close(found, right)


@pytest.mark.parametrize("inserted", [False, True])
@pytest.mark.parametrize(("name", "options", "backend"), BACKEND_CASES)
def test_a_negation_is_seen_after_a_call_with_the_same_strides(name, options, backend, inserted):
    """Strides do not tell a part of a complex number from the same part of its conjugate.

    An axis of size 1 that is inserted afterwards may have an odd stride.
    """
    case = example(name, 1, **options).to(torch.float32)

    def imaginary(tensor: torch.Tensor) -> torch.Tensor:
        return torch.complex(torch.zeros_like(tensor), tensor).imag

    def gradients(layout) -> list[torch.Tensor]:
        def laid(tensor: torch.Tensor) -> torch.Tensor:
            if inserted and tensor.shape[-1] == 1:
                return layout(tensor.squeeze(-1)).unsqueeze(-1)
            return layout(tensor)

        given = [laid(t.detach()) if t.is_floating_point() else t for t in case.tensors]
        wanted = [t.requires_grad_() for t in given if t.is_floating_point()]
        with kernels.backend(backend):
            outputs = case.run(given)
        incoming = [laid((output.detach() * 3).cos()) for output in outputs]
        return [*outputs, *torch.autograd.grad(outputs, wanted, incoming)]

    expected = gradients(torch.clone)
    for layout in (imaginary, negated, imaginary):
        for found, right in zip(gradients(layout), expected, strict=True):
            torch.testing.assert_close(found, right)


@pytest.mark.compiler
@pytest.mark.parametrize("used", ["y", "one state"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_outputs_that_nobody_used_have_no_gradient(name, options, used):
    """Training does not use the last state of an unroll."""
    case = example(name, 5, **options)

    def gradients() -> dict[str, torch.Tensor]:
        leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in case.tensors]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        output = case.run(leaves)[0 if used == "y" else -1]
        return dict(enumerate(case.gradients([output], wanted)))

    with kernels.backend("reference"):
        expected = gradients()
    with kernels.backend("cpu"):
        assert_agree(gradients(), expected, 1e-12)


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "options"), CASES)
def test_inputs_and_saved_tensors_are_never_written(name, options):
    case = example(name, 5, **options).to(torch.float32)
    leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in case.tensors]
    with kernels.backend("cpu"):
        outputs = case.run(leaves)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        total = sum(output.square().sum() for output in outputs)
        first = torch.autograd.grad(total, wanted, retain_graph=True)
        again = torch.autograd.grad(total, wanted)
    for a, b in zip(leaves, case.tensors, strict=True):
        assert torch.equal(a, b)
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a, b)


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_gradient_free_call_gives_the_same_bits(name, options):
    case = example(name, 5, **options).to(torch.float32)
    with kernels.backend("cpu"):
        with torch.no_grad():
            plain = case.run()
        traced = case.run_with_gradients()
    for output, expected in zip(plain, traced.values(), strict=False):
        assert torch.equal(output, expected)
