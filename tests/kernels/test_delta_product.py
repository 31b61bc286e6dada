"""Several delta rules a step, on the delta rule's kernels, against the reference."""

import math

import pytest
import torch
from kernel_cases import all_resets, assert_agree
from torch import Tensor

from fastweights import kernels
from fastweights.kernels.delta_product import (
    DeltaRuleState,
    delta_product,
    gated_delta_product,
    interleaved,
)
from fastweights.kernels.delta_product.reference import gated_step, step
from fastweights.kernels.feature_maps import unit
from fastweights.kernels.recurrence import forget

T, B, H, K, V = 7, 5, 2, 4, 3
BOTH = [
    pytest.param(delta_product, step, id="plain"),
    pytest.param(gated_delta_product, gated_step, id="gated"),
]
BACKENDS = ["reference", "chunked", pytest.param("cpu", marks=pytest.mark.compiler)]


def inputs(steps: int, gated: bool, time: int = T) -> list[Tensor]:
    """Return inputs with keys of length one and strengths in (0, 2), then the first state."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rows = [normal(time, B, H, K), unit(normal(time, B, H, steps, K))]
    rows += [normal(time, B, H, steps, V), 2 * normal(time, B, H, steps).sigmoid()]
    decay = [-normal(time, B, H).exp() / 10] if gated else []
    return [*rows, *decay, normal(B, H, K, V)]


def literal(step, tensors: list[Tensor], is_first: Tensor) -> tuple[Tensor, Tensor]:
    *rows, weights = tensors
    state, outputs = DeltaRuleState(weights), []
    for t in range(len(is_first)):
        y, state = step(*(row[t] for row in rows), forget(state, is_first[t]))
        outputs.append(y)
    return torch.stack(outputs), state.fast_weights


def by_operation(operation, tensors: list[Tensor], is_first: Tensor) -> tuple[Tensor, Tensor]:
    *rows, weights = tensors
    y, state = operation(*rows, is_first, DeltaRuleState(weights))
    return y, state.fast_weights


def with_gradients(run, tensors: list[Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in tensors]
    outputs = run(leaves)
    weights = [torch.linspace(-1, 1, y.numel(), dtype=dtype).view_as(y) for y in outputs]
    found = [*outputs, *torch.autograd.grad(outputs, leaves, weights)]
    return {str(place): tensor.detach() for place, tensor in enumerate(found)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize(("operation", "step"), BOTH)
def test_it_equals_the_literal_reference(operation, step, steps, backend):
    """Compare outputs, last state and every gradient, with all kinds of resets."""
    tensors, is_first = inputs(steps, step is gated_step), all_resets(T)
    right = with_gradients(lambda leaves: literal(step, leaves, is_first), tensors, torch.float64)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        with kernels.backend(backend):
            found = with_gradients(
                lambda leaves: by_operation(operation, leaves, is_first), tensors, dtype
            )
        assert_agree(found, right, tolerance)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("operation", "step"), BOTH)
def test_float32_over_a_long_episode(operation, step, backend):
    tensors = inputs(3, step is gated_step, time=64)
    is_first = torch.zeros(64, B, dtype=torch.bool)
    right = with_gradients(lambda leaves: literal(step, leaves, is_first), tensors, torch.float64)
    with kernels.backend(backend):
        found = with_gradients(
            lambda leaves: by_operation(operation, leaves, is_first), tensors, torch.float32
        )
    assert_agree(found, right, 1e-5)


@pytest.mark.parametrize(("operation", "step"), BOTH)
def test_no_rows(operation, step):
    tensors = inputs(2, step is gated_step, time=0)
    y, weights = by_operation(operation, tensors, torch.zeros(0, B, dtype=torch.bool))
    assert y.shape == (0, B, H, V) and torch.equal(weights, tensors[-1])


@pytest.mark.parametrize(("operation", "step"), BOTH)
def test_one_row_forgets_once_and_fades_once(operation, step, monkeypatch):
    """The delta rule gets a row that forgets and fades only once, and a single query."""
    name, seen = "gated_delta_rule" if step is gated_step else "delta_rule", []
    rule = getattr(interleaved, name)
    monkeypatch.setattr(interleaved, name, lambda *call: seen.append(call) or rule(*call))
    tensors, is_first = inputs(3, step is gated_step, time=1), torch.ones(1, B, dtype=torch.bool)
    by_operation(operation, tensors, is_first)
    ((q, *_, first, _),) = seen
    assert [row.any().item() for row in q] == [False, False, True]
    assert [row.any().item() for row in first] == [True, False, False]
    if step is gated_step:
        assert [row.any().item() for row in seen[0][4]] == [True, False, False]


def test_exchanges_make_any_permutation():
    """S writes of strength two with keys (e_i - e_j) / sqrt 2 permute the values of S + 1 keys."""
    exchanges, values = [(0, 1), (1, 2), (2, 3)], torch.randn(4, V, dtype=torch.float64)
    keys, order = torch.zeros(1, 1, 1, 3, 4, dtype=torch.float64), [0, 1, 2, 3]
    for s, (i, j) in enumerate(exchanges):
        keys[..., s, i], keys[..., s, j] = math.sqrt(0.5), -math.sqrt(0.5)
        order[i], order[j] = order[j], order[i]
    written = torch.zeros(1, 1, 1, 3, V, dtype=torch.float64), keys.new_full((1, 1, 1, 3), 2.0)
    row = keys[..., 0, :], keys, *written
    state = DeltaRuleState(values[None, None])
    _, after = delta_product(*row, torch.zeros(1, 1, dtype=torch.bool), state)
    torch.testing.assert_close(after.fast_weights[0, 0], values[order])
