"""Writes of strengths in (0, 2) with keys of length one, which can reverse what a key reads.

I - beta k k^T then has eigenvalues in (-1, 1). The state neither grows nor has to fade, so rounding
errors can stay for a whole episode. Float32 is compared with the reference in float64.
"""

import pytest
import torch
from kernel_cases import assert_agree, backends, example, truth, with_neighbours
from torch import Tensor

from fastweights import kernels
from fastweights.kernels.feature_maps import unit
from fastweights.kernels.machinery.example import KEYS, STRENGTHS, Example, make
from fastweights.kernels.registry import OPERATIONS

NAMES = ("delta_rule", "gated_delta_rule", "delta_rnn", "delta_lstm")
CASES = [(name, backend) for name in NAMES for backend in backends(name)]


def reversing(name: str, time: int, is_first: Tensor | None = None) -> Example:
    """Half of the call's strengths are near 2, half spread over (0, 2); decays are near 1."""
    sizes = {"T": time, "B": 2, "H": 2, "K": 8, "V": 8, "D": 8}
    case = make(OPERATIONS[name], sizes, is_first)
    generator, tensors = torch.Generator().manual_seed(1), []
    for argument, tensor in zip(case.operation.signature.arguments, case.tensors, strict=True):
        normal = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        if argument.name in KEYS:
            tensor = unit(normal)
        elif argument.name in STRENGTHS:
            tensor = 2 * torch.where(normal > 0, 5 + normal, 3 * normal).sigmoid()
        elif argument.name == "log_decay":
            tensor = -normal.exp() / 1000
        tensors.append(tensor)
    return Example(case.operation, tensors, case.options)


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_float32_equals_the_reference_over_a_long_episode(name, backend):
    is_first = torch.zeros(100, 2, dtype=torch.bool)
    is_first[75, 1] = True
    case = reversing(name, 100, is_first)
    with kernels.backend(backend):
        found = case.to(torch.float32).run_with_gradients()
    assert_agree(found, truth(case), 1e-5)


@pytest.mark.compiler
@pytest.mark.parametrize("size", [8, 16, 17])
@pytest.mark.parametrize("feature_map", ["unit", "silu_unit"])
@pytest.mark.parametrize("name", ["recurrent_delta_rule", "self_referential"])
def test_float32_equals_the_reference_where_the_memory_maps_its_own_keys(name, feature_map, size):
    """A recurrent memory magnifies rounding, so the reference in float32 gives the tolerance."""
    case = example(name, size, time=12, feature_map=feature_map, strength_map="double_sigmoid")
    with kernels.backend("reference"):
        near = with_neighbours(case)
        unavoidable = max(farthest(one.run_with_gradients(), truth(one)) for one in near)
    with kernels.backend("cpu"):
        found = case.to(torch.float32).run_with_gradients()
    assert farthest(found, truth(case)) < max(4 * unavoidable, 1e-5) < 1e-3


def farthest(found: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """Return the largest error of all tensors, relative to the largest entry, or to 1."""
    errors = [(found[n] - r).abs().max() / r.abs().max().clamp_min(1) for n, r in right.items()]
    return torch.stack(errors).max().item()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_grows(name):
    """The bound on the state does not depend on the length of the episode."""
    case = reversing(name, 2_000).to(torch.float32)
    with torch.no_grad():
        _, *state = case.run()
    assert all(tensor.abs().max() < 100 for tensor in state)
