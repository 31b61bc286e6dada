"""The mLSTM as gated linear attention against its reference: outputs, states, all gradients."""

import pytest
import torch
from kernel_cases import all_resets

from fastweights.kernels import backend
from fastweights.kernels.mlstm import MLSTMState, mlstm, reference

B, H, K, V = 5, 2, 3, 4


def call(T: int, gates: float, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    q, k = torch.randn(2, T, B, H, K)
    v, output_gate = torch.randn(T, B, H, V), torch.rand(T, B, H, V)
    log_input, log_forget = gates * (torch.randn(2, T, B, H) - 0.7)
    state = torch.randn(B, H, K, V), torch.randn(B, H, K), torch.rand(B, H)
    return [x.to(dtype) for x in (q, k, v, log_input, log_forget, output_gate, *state)]


def results(unroll, given: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [x.clone().requires_grad_() for x in given]
    y, after = unroll(*leaves[:6], all_resets(len(given[0])), MLSTMState(*leaves[6:]))
    found = [y, *after]
    weights = [(3 * x.detach()).cos() for x in found]
    return [*found, *torch.autograd.grad(found, leaves, weights)]


DOUBLE, SINGLE = (torch.float64, 1e-10), (torch.float32, 2e-5)


@pytest.mark.parametrize("time", [1, 7, 33])
@pytest.mark.parametrize(
    ("name", "kind", "gates"),
    [
        ("chunked", DOUBLE, 0.5),
        ("chunked", DOUBLE, 8.0),
        pytest.param("cpu", DOUBLE, 0.5, marks=pytest.mark.compiler),
        pytest.param("cpu", DOUBLE, 8.0, marks=pytest.mark.compiler),
        # Larger gates magnify rounding, also in the reference in float32.
        pytest.param("cpu", SINGLE, 0.5, marks=pytest.mark.compiler),
    ],
)
def test_it_equals_the_reference(name, kind, gates, time):
    """Gates have all sizes; the scale is above 0 in some columns and 0 in others."""
    dtype, tolerance = kind
    with backend(name):
        found = results(mlstm, call(time, gates, dtype))
    expected = results(reference.unroll, call(time, gates, torch.float64))
    assert time == 1 or ((expected[3] > 0).any() and (expected[3] == 0).any())
    for one, other in zip(found, expected, strict=True):
        scale = other.abs().max().clamp(min=1)
        torch.testing.assert_close(one.double() / scale, other / scale, atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    "name", ["reference", "chunked", pytest.param("cpu", marks=pytest.mark.compiler)]
)
@pytest.mark.parametrize(("query", "log_input", "log_forget"), [(1, 0, 120), (0, 120, 0)])
def test_a_divisor_that_underflows_is_not_zero(name, query, log_input, log_forget):
    """In float32, exp(-120) is 0; an empty memory and a zero query still read as 0."""
    numbers = (query, 1.0, 1.0, log_input, log_forget, 1.0, 0.0, 0.0, 0.0)
    shapes = [tensor.shape for tensor in call(7, 0.5, torch.float32)]
    given = [torch.full(shape, float(one)) for shape, one in zip(shapes, numbers, strict=True)]
    rows, fresh = [tensor[:2].clone().requires_grad_() for tensor in given[:6]], given[6:]
    with backend(name):
        y, _ = mlstm(*rows, torch.zeros(2, B, dtype=torch.bool), MLSTMState(*fresh))
    assert torch.equal(y[0], torch.zeros_like(y[0]))
    for gradient in torch.autograd.grad(y[0].sum(), rows[2:]):
        assert gradient.isfinite().all()


def test_without_rows_the_state_is_handed_back():
    given = call(0, 0.5, torch.float32)
    y, after = mlstm(*given[:6], torch.zeros(0, B, dtype=torch.bool), MLSTMState(*given[6:]))
    assert y.shape == (0, B, H, V)
    for one, other in zip(after, given[6:], strict=True):
        assert torch.equal(one, other) and one.data_ptr() != other.data_ptr()


@pytest.mark.parametrize("where", range(9))
def test_nan_stays_in_its_episode(where):
    given = call(7, 0.5, torch.float64)
    clean = mlstm(*given[:6], all_resets(), MLSTMState(*given[6:]))[0]
    spoilt = [x.clone().requires_grad_() for x in given]
    with torch.no_grad():
        row = spoilt[where][2] if where < 6 else spoilt[where]
        row[2] = torch.nan  # the column with a reset in the middle
    y, _ = mlstm(*spoilt[:6], all_resets(), MLSTMState(*spoilt[6:]))
    torch.testing.assert_close(y[3:, 2], clean[3:, 2], atol=1e-12, rtol=0)
    for grad in torch.autograd.grad(y[3:, 2].sum(), spoilt[:6]):
        assert grad[3:].isfinite().all()
