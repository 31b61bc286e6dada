"""Resets inside an unroll, and empty unrolls."""

import pytest
import torch
from kernel_cases import BACKEND_CASES, CASES, assert_agree, example

from fastweights import kernels
from fastweights.kernels.machinery.example import Example, make
from fastweights.kernels.registry import OPERATIONS

ALL = [*BACKEND_CASES] + [
    pytest.param(*case.values, "reference", id=f"{case.id}-reference") for case in CASES
]


def time_positions(case: Example) -> list[int]:
    arguments = case.operation.signature.arguments
    return [i for i, argument in enumerate(arguments) if argument.axes[0] == "T"]


def part(case: Example, rows: slice, state: list[torch.Tensor] | None = None) -> Example:
    """Return the same call for some rows only, from another state."""
    timed = time_positions(case)
    tensors = [t[rows] if i in timed else t for i, t in enumerate(case.tensors)]
    if state is not None:
        tensors[len(tensors) - len(state) :] = state
    return Example(case.operation, tensors, case.options)


def fresh(case: Example) -> list[torch.Tensor]:
    count = len(case.operation.signature.state)
    return [torch.zeros_like(t) for t in case.tensors[-count:]]


@pytest.mark.parametrize(("name", "options", "backend"), ALL)
def test_a_reset_is_a_new_sequence(name, options, backend):
    sizes = {"T": 7, "B": 2, "H": 2, "K": 5, "V": 5, "D": 5}
    mask = torch.zeros(7, 2, dtype=torch.bool)
    mask[4] = True
    case = make(OPERATIONS[name], sizes, mask, **options)
    with kernels.backend(backend):
        whole = case.run()
        before = part(case, slice(0, 4)).run()
        after = part(case, slice(4, 7), fresh(case)).run()
    torch.testing.assert_close(whole[0], torch.cat([before[0], after[0]]), rtol=0, atol=1e-12)
    for a, b in zip(whole[1:], after[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "options", "backend"), ALL)
def test_an_unroll_can_be_cut_anywhere(name, options, backend):
    case = example(name, 5, **options)
    with kernels.backend(backend):
        whole = case.run()
        y, *state = part(case, slice(0, 3)).run()
        rest = part(case, slice(3, None), state).run()
    torch.testing.assert_close(whole[0], torch.cat([y, rest[0]]), rtol=0, atol=1e-12)
    for a, b in zip(whole[1:], rest[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "options", "backend"), ALL)
def test_no_gradient_crosses_a_reset(name, options, backend):
    """Row 4 is reset: earlier rows get exactly zero gradient from later ones."""
    sizes = {"T": 7, "B": 2, "H": 2, "K": 5, "V": 5, "D": 5}
    mask = torch.zeros(7, 2, dtype=torch.bool)
    mask[4] = True
    case = make(OPERATIONS[name], sizes, mask, **options)
    leaves = [t.requires_grad_(t.is_floating_point()) for t in case.tensors]
    with kernels.backend(backend):
        y, *state = case.run(leaves)
    total = y[4:].square().sum() + sum(tensor.square().sum() for tensor in state)
    timed, count = time_positions(case), len(state)
    for i, argument in enumerate(case.operation.signature.arguments):
        if not leaves[i].requires_grad:
            continue
        grad = torch.autograd.grad(total, leaves[i], retain_graph=True)[0]
        if i in timed:
            assert not grad[:4].any(), argument.name
        elif i >= len(leaves) - count:
            assert not grad.any(), argument.name


@pytest.mark.parametrize(("name", "options", "backend"), ALL)
@pytest.mark.parametrize("row", [0, 3])
def test_nan_before_a_reset_does_not_leak(name, options, backend, row):
    """An episode that diverged does not affect the next one, forward or backward."""
    sizes = {"T": 7, "B": 2, "H": 2, "K": 5, "V": 5, "D": 5}
    mask = torch.zeros(7, 2, dtype=torch.bool)
    mask[row] = True
    case = make(OPERATIONS[name], sizes, mask, **options)
    count = len(case.operation.signature.state)
    case.tensors[-count:] = [torch.full_like(t, float("nan")) for t in case.tensors[-count:]]
    timed = time_positions(case)
    leaves = [
        t.requires_grad_(i in timed and t.is_floating_point()) for i, t in enumerate(case.tensors)
    ]
    with kernels.backend(backend):
        y, *state = case.run(leaves)
        assert y[row:].isfinite().all()
        assert all(tensor.isfinite().all() for tensor in state)
        inputs = [leaf for leaf in leaves if leaf.requires_grad]
        total = y[row:].sum() + sum(tensor.sum() for tensor in state)
        for grad in torch.autograd.grad(total, inputs):
            assert grad[row:].isfinite().all()


@pytest.mark.parametrize(("name", "options", "backend"), ALL)
def test_inputs_that_are_nan_before_a_reset_do_not_leak(name, options, backend):
    """A chunk contains two old episodes with NaN and a new one, which is unaffected."""
    sizes = {"T": 9, "B": 2, "H": 2, "K": 5, "V": 5, "D": 5}
    mask = torch.zeros(9, 2, dtype=torch.bool)
    mask[2] = mask[4] = True
    case = make(OPERATIONS[name], sizes, mask, **options)
    timed = [i for i in time_positions(case) if case.tensors[i].is_floating_point()]

    def new_episode(value: float) -> list[torch.Tensor]:
        """Return the outputs from row 4 on, and the gradients of their inputs."""
        tensors = [t.clone() for t in case.tensors]
        for i in timed:
            tensors[i][1:4] = value
            tensors[i].requires_grad_()
        with kernels.backend(backend):
            y, *state = case.run(tensors)
            assert value == value or y[1:4].isnan().any()
            total = y[4:].square().sum() + sum(tensor.square().sum() for tensor in state)
            grads = torch.autograd.grad(total, [tensors[i] for i in timed])
        return [y[4:], *state, *(grad[4:] for grad in grads)]

    expected = new_episode(0.0)
    for value in (float("nan"), float("inf")):
        for found, right in zip(new_episode(value), expected, strict=True):
            assert torch.equal(found, right)


@pytest.mark.parametrize(("name", "options", "backend"), ALL)
@pytest.mark.parametrize("empty", ["T", "B"])
def test_nothing_to_do(name, options, backend, empty):
    sizes = {"T": 3, "B": 2, "H": 2, "K": 5, "V": 5, "D": 5} | {empty: 0}
    case = make(OPERATIONS[name], sizes, **options).to(torch.float32)
    with kernels.backend(backend):
        found = case.run_with_gradients()
    with kernels.backend("reference"):
        assert_agree(found, case.run_with_gradients(), 0.0)
    if empty == "T":
        count = len(case.operation.signature.state)
        for final, initial in zip(list(found.values())[1:], case.tensors[-count:], strict=False):
            assert torch.equal(final, initial)
