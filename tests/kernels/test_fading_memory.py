"""The gradient of the decay, computed in stretches of 16 rows (kernels/include/fading_memory.h)."""

import pytest
import torch
from kernel_cases import RESETS, all_resets, assert_agree, by_threads, truth

from fastweights import kernels
from fastweights.kernels.machinery import cpu_call
from fastweights.kernels.machinery.example import Example, make
from fastweights.kernels.registry import OPERATIONS

NAMES = ("gated_linear_attention", "gated_delta_rule")
LOUD = 1e6  # how much more the late rows weigh in the loss

pytestmark = [pytest.mark.compiler, pytest.mark.parametrize("name", NAMES)]


@pytest.fixture(autouse=True)
def _outputs_start_as_nan(monkeypatch):
    fresh = torch.empty_like
    monkeypatch.setattr(cpu_call, "allocate_like", lambda like: fresh(like).fill_(float("nan")))


def call(name: str, time: int, keys: int = 8, values: int = 8) -> Example:
    sizes = {"T": time, "B": RESETS, "H": 2, "K": keys, "V": values}
    return make(OPERATIONS[name], sizes, all_resets(time))


def on_cpu(case: Example) -> dict[str, torch.Tensor]:
    with kernels.backend("cpu"):
        return case.run_with_gradients()


@pytest.mark.parametrize("time", [0, 1, 15, 16, 17, 32, 33, 70])
@pytest.mark.parametrize(("keys", "values"), [(1, 1), (5, 20), (33, 17)])
def test_gradients_over_several_stretches(name, time, keys, values):
    case = call(name, max(time, 1), keys, values)
    if time == 0:
        steps = len(case.operation.signature.inputs)
        case.tensors[: steps + 1] = [tensor[:0] for tensor in case.tensors[: steps + 1]]
    right = truth(case)
    assert_agree(on_cpu(case), right, 1e-12)
    assert_agree(on_cpu(case.to(torch.float32)), right, 1e-5)


def test_the_same_bits_for_any_number_of_threads(name):
    case = call(name, 40, 32, 32).to(torch.float32)
    one, two = by_threads(lambda: on_cpu(case), (1, 2))
    for tensor in one:
        assert torch.equal(one[tensor], two[tensor]), tensor


def gradient_of_decay(case: Example, backend: str, dtype: torch.dtype, weights) -> torch.Tensor:
    case = case.to(dtype)
    log_decay = case.tensors[len(case.operation.signature.inputs) - 1].requires_grad_()
    with kernels.backend(backend):
        y, _ = case.run()
        loss = torch.where(weights > 0, y * weights, 0).sum()
        return torch.autograd.grad(loss, log_decay)[0].double()


@pytest.mark.parametrize("cut", [10, 30, 32])
def test_each_row_is_as_exact_as_the_reference(name, cut):
    """Late rows with large gradients leave the early ones alone, beyond a row that forgets."""
    case, weights = call(name, 60), torch.ones(60, 1, 1, 1)
    case.tensors[case.operation.signature.is_first_position].zero_()
    case.tensors[len(case.operation.signature.inputs) - 1][cut] = -20
    weights[cut:] = LOUD
    right = gradient_of_decay(case, "reference", torch.float64, weights)
    for row, expected in zip(
        gradient_of_decay(case, "cpu", torch.float32, weights), right, strict=True
    ):
        assert (row - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_a_nan_value_in_a_row_outside_the_loss(name):
    case, weights = call(name, 40), torch.ones(40, 1, 1, 1)
    names = [each.name for each in case.operation.signature.arguments]
    case.tensors[names.index("is_first")].zero_()
    weights[25:] = 0
    right = gradient_of_decay(case, "reference", torch.float64, weights)
    case.tensors[names.index("v")][27] = float("nan")
    found = gradient_of_decay(case, "cpu", torch.float64, weights)
    torch.testing.assert_close(found[:25], right[:25], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("backend", ["chunked", "cpu"])
def test_a_decay_of_minus_infinity_forgets(name, backend):
    case = call(name, 40)
    log_decay = case.tensors[len(case.operation.signature.inputs) - 1]
    log_decay[[0, 5, 33], :2] = -torch.inf
    log_decay[20] = -torch.inf
    right = truth(case)
    assert right["y"].isfinite().all()
    with kernels.backend(backend):
        assert_agree(case.run_with_gradients(), right, 1e-11)
