"""The C++ kernels, built for double, against finite differences."""

import pytest
import torch
from kernel_cases import CASES

from fastweights import kernels
from fastweights.kernels.machinery.example import make
from fastweights.kernels.registry import OPERATIONS


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "options"), CASES)
def test_gradients_are_those_of_the_outputs(name, options):
    sizes = {"T": 3, "B": 2, "H": 1, "K": 2, "V": 3, "D": 2}
    mask = torch.tensor([[False, False], [False, True], [False, False]])
    case = make(OPERATIONS[name], sizes, mask, **options)
    places = case.operation.signature.differentiable

    def outputs(*leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        tensors = list(case.tensors)
        for place, leaf in zip(places, leaves, strict=True):
            tensors[place] = leaf
        return tuple(case.run(tensors))

    leaves = [case.tensors[place].clone().requires_grad_() for place in places]
    with kernels.backend("cpu"):
        assert torch.autograd.gradcheck(outputs, leaves, atol=1e-6, rtol=1e-4)
