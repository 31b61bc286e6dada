"""The calls that the kernel tests run: every operation in every version, all kinds of resets."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
import torch

from fastweights import kernels
from fastweights.kernels.machinery.example import Example, make
from fastweights.kernels.registry import OPERATIONS

# With keys of length one, recurrent versions are chaotic on random inputs: test_reversing_writes.
TO_TWO = {"feature_map": "softmax", "strength_map": "double_sigmoid"}
VERSIONS = {
    "delta_rnn": [{"version": v} for v in "AB"],
    "delta_lstm": [{"version": v} for v in "ABCD"],
    # elu and identity are unstable on random inputs: see test_every_feature_map.
    "recurrent_delta_rule": [{"feature_map": m} for m in ("softmax", "elu_sum")] + [TO_TWO],
    "self_referential": [{"feature_map": m} for m in ("softmax", "elu_sum")] + [TO_TWO],
}
CASES = [
    pytest.param(name, options, id="-".join([name, *options.values()]))
    for name in OPERATIONS
    for options in VERSIONS.get(name, [{}])
]
TIME, RESETS = 7, 5
Result = TypeVar("Result")


def all_resets(time: int = TIME) -> torch.Tensor:
    """Return [T, 5]: no reset; at row 0; in the middle; at the last row; at every row."""
    mask = torch.zeros(time, RESETS, dtype=torch.bool)
    mask[0, 1] = mask[time // 2, 2] = mask[-1, 3] = True
    mask[:, 4] = True
    return mask


def by_threads(run: Callable[[], Result], numbers: Sequence[int]) -> list[Result]:
    """Return the result of `run` for each number of torch's threads."""
    before, found = torch.get_num_threads(), []
    try:
        for number in numbers:
            torch.set_num_threads(number)
            found.append(run())
    finally:
        torch.set_num_threads(before)
    return found


def example(
    name: str, keys: int, values: int | None = None, time: int = TIME, **options
) -> Example:
    sizes = {"T": time, "B": RESETS, "H": 2, "K": keys, "V": values or keys, "D": keys}
    return make(OPERATIONS[name], sizes, all_resets(time), **options)


def truth(case: Example) -> dict[str, torch.Tensor]:
    """Return outputs and gradients by name, from the reference in float64."""
    with kernels.backend("reference"):
        return case.to(torch.float64).run_with_gradients()


def with_neighbours(case: Example, number: int = 4) -> list[Example]:
    """Return the case in float32, and copies whose numbers differ from it in the last bit.

    A computation that magnifies rounding may be lucky once. What it makes of one call says little;
    the largest error over several says what is unavoidable.
    """
    generator, cases = torch.Generator().manual_seed(0), [case.to(torch.float32)]
    for _ in range(number):
        moved = [
            tensor * (1 + 1e-7 * torch.randn(tensor.shape, generator=generator))
            if tensor.is_floating_point()
            else tensor
            for tensor in cases[0].tensors
        ]
        cases.append(Example(case.operation, moved, case.options))
    return cases


def assert_agree(
    found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float
) -> None:
    """Compare every tensor by name, relative to its largest entry (or to 1, if that is smaller)."""
    assert found.keys() == expected.keys()
    for name, right in expected.items():
        scale = right.abs().max().clamp_min(1.0) if right.numel() else 1.0
        error = (found[name] - right).abs() / scale
        assert found[name].shape == right.shape, name
        assert bool((error <= tolerance).all()), f"{name}: off by {error.max().item():.1e}"


def backends(name: str) -> list[str]:
    return [
        backend for backend in OPERATIONS[name].backends if backend not in ("reference", "cuda")
    ]


BACKEND_CASES = [
    pytest.param(case.values[0], case.values[1], backend, id=f"{case.id}-{backend}")
    for case in CASES
    for backend in backends(case.values[0])
]
