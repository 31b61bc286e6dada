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
    assert_same,
    build,
    every_core,
    every_memory,
    gradients,
    inputs,
    never,
    rebuilt,
    resets,
    tensors,
    used_state,
)

TINY = {"layers": 1, "width": 8, "heads": 2, "feedforward": 8, "window": 4, "stack_depth": 3}


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


@every_core
@pytest.mark.parametrize("bptt", [None, T, T + 5])
def test_no_truncation_is_the_full_gradient(name, bptt):
    core, x, is_first = build(name), inputs().requires_grad_(), resets()
    state = used_state(core)
    y, _ = unroll_truncated(core, x, state, is_first, bptt)
    whole, _ = core.unroll(x, state, is_first)
    assert_same(gradients(core, y.square().sum(), x), gradients(core, whole.square().sum(), x), 0)


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


@every_core
def test_a_core_is_what_its_state_dict_says(name):
    """As after construction on the device `meta`, whose tensors have no numbers of their own."""
    core, again = build(name), build(name)
    with torch.no_grad():
        for tensor in (*again.parameters(), *again.buffers()):
            tensor.fill_(torch.nan)
    again.load_state_dict(core.state_dict())
    x, state, is_first = inputs(), used_state(core), never()
    assert torch.equal(again.unroll(x, state, is_first)[0], core.unroll(x, state, is_first)[0])
    assert torch.equal(again.step(x[0], state)[0], core.step(x[0], state)[0])


@pytest.mark.parametrize("name", CORES)
def test_the_reference_has_second_derivatives(name):
    core, x = build(name), inputs().requires_grad_()
    with kernels.backend("reference"):
        y, _ = core.unroll(x, used_state(core), never())
        (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
    assert x.grad.isfinite().all()


def test_a_new_process_can_compile_every_core_as_one_graph():
    """The facts of a signature are computed before Dynamo traces their use."""
    code = f"""
import torch
from fastweights.cores import CORES, build_core
torch._dynamo.config.suppress_errors = False
for name, kind in reversed(CORES.items()):  # products of delta rules before the delta rule
    torch.compiler.reset()
    options = kind.options()
    core = build_core(name, 5, **{{k: size for k, size in {TINY}.items() if k in options}})
    x = torch.randn(2, 2, 5)
    y, state = torch.compile(core, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(y, core(x)[0])
    print(name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == list(reversed(CORES)), done.stderr
