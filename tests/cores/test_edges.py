"""Cores at the edges: NaN before a reset, no rows, truncation at the whole length, wrong states."""

import subprocess
import sys

import pytest
import torch

from fastweights import kernels
from fastweights.cores import CORES, unroll_by_steps, unroll_truncated
from tests.cores.test_contract import (
    INPUT,
    REMEMBER,
    B,
    T,
    build,
    every_core,
    every_memory,
    inputs,
    never,
    rebuilt,
    tensors,
    used_state,
)


@every_core
def test_a_nan_of_an_old_episode_reaches_no_later_gradient(name):
    core, x, is_first = build(name), inputs(), never()
    is_first[3, 1] = True
    x[1, 1] = torch.nan
    x.requires_grad_()
    y, _ = core.unroll(x, used_state(core), is_first)
    (gradient,) = torch.autograd.grad(y[3:].square().sum(), x)
    assert gradient[3:].isfinite().all()
    assert gradient[:, [0, 2]].isfinite().all()


@every_core
def test_an_unroll_of_no_rows_is_differentiable(name):
    core, x = build(name), inputs(0).requires_grad_()
    state = used_state(core)
    y, final = core.unroll(x, state, never(0))
    y.sum().backward()
    assert y.shape == (0, B, core.output_size) and x.grad.shape == x.shape
    by_steps, same = unroll_by_steps(core, x, state, never(0))
    assert by_steps.shape == y.shape
    for after in (final, same):
        assert all(map(torch.equal, tensors(after), tensors(state)))


@every_memory
@pytest.mark.parametrize("bptt", [T, T + 5])
def test_truncation_at_the_whole_length_detaches_the_initial_state(name, bptt):
    core = build(name)
    leaves = [tensor.clone().requires_grad_() for tensor in tensors(used_state(core))]
    state = rebuilt(core.initial_state(B), leaves)
    y, _ = unroll_truncated(core, inputs(), state, never(), bptt)
    reached = torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)
    assert reached == (None,) * len(leaves)


@pytest.mark.parametrize("bptt", [0, -1])
def test_truncation_to_no_step_is_refused(bptt):
    core = build("rdn")
    with pytest.raises(ValueError, match=f"bptt must be at least 1, not {bptt}"):
        unroll_truncated(core, inputs(), core.initial_state(B), never(), bptt)


@pytest.mark.parametrize("name", REMEMBER)
def test_inspection_checks_its_arguments_as_a_step_does(name):
    core = build(name)
    with pytest.raises(ValueError, match="must"):
        core.inspect(inputs()[0], core.initial_state(B - 1))
    with pytest.raises(ValueError, match=rf"must have shape \[batch, {INPUT}\]"):
        core.inspect(inputs()[0, :, :-1], core.initial_state(B))


@pytest.mark.parametrize("name", CORES)
def test_the_reference_has_second_derivatives(name):
    core, x = build(name), inputs().requires_grad_()
    with kernels.backend("reference"):
        y, _ = core.unroll(x, used_state(core), never())
        (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
    assert x.grad.isfinite().all()


def test_a_new_process_can_compile_operations_that_call_others():
    """The facts of a signature are computed before Dynamo traces their use."""
    code = """
import torch
from fastweights.cores import build_core
torch._dynamo.config.suppress_errors = False
for core in (
    build_core("delta_product", 5, width=8, heads=2, layers=1, feedforward=8),
    build_core("elman", 5, width=8),
    build_core("gru", 5, width=8),
):
    found = torch.compile(core, backend="eager", fullgraph=True)(torch.randn(4, 2, 5))
    print(found[0].shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == 3 * "torch.Size([4, 2, 8])\n", done.stderr
