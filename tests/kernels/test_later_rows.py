"""Gradients of earlier rows do not depend on the size of a later row in the same segment."""

import pytest
import torch

from fastweights.kernels import backend
from fastweights.kernels.machinery.example import Example, make
from fastweights.kernels.registry import OPERATIONS

# These kernels pass over time twice and recompute no earlier state.
TWICE = [
    f"{gated}{rule}" for rule in ("linear_attention", "delta_rule") for gated in ("", "gated_")
]


def gradients_of_earlier_rows(case: Example, dtype: torch.dtype, name: str) -> list[torch.Tensor]:
    tensors = [t.to(dtype) if t.is_floating_point() else t for t in case.tensors]
    leaves = [tensors[i].requires_grad_() for i in case.operation.signature.differentiable]
    with backend(name):
        y, *_ = case.run(tensors)
    inputs = leaves[: len(case.operation.signature.inputs)]
    return [grad[:-1] for grad in torch.autograd.grad(y[:-1].sum(), inputs)]


@pytest.mark.compiler
@pytest.mark.parametrize("last", [1.0, 1e7, float("inf"), float("nan")])
@pytest.mark.parametrize("name", TWICE)
def test_a_huge_last_value_leaves_the_gradients_before_it_as_they_are(name, last):
    case = make(OPERATIONS[name], {"T": 12, "B": 2, "H": 2, "K": 8, "V": 8, "D": 8})
    case.tensors[case.operation.signature.is_first_position].zero_()
    places = [argument.name for argument in case.operation.signature.arguments]
    case.tensors[places.index("v")][-1] = last
    expected = gradients_of_earlier_rows(case, torch.float64, "reference")
    found = gradients_of_earlier_rows(case, torch.float32, "cpu")
    for one, other in zip(found, expected, strict=True):
        for row, expected_row in zip(one, other, strict=True):
            scale = expected_row.abs().max().clamp(min=1e-3)
            torch.testing.assert_close(
                row.double() / scale, expected_row / scale, atol=3e-6, rtol=0
            )
