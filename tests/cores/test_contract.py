"""The contract of `cores.core.Core`, tested for every memory, with tiny sizes in float64."""

import pytest
import torch
from torch import Tensor

from fastweights import kernels
from fastweights.cores import CORES, build_core, detach, unroll_by_steps, unroll_truncated
from fastweights.cores.core import Core
from fastweights.kernels.recurrence import map_state
from tests.cores.core_variants import VARIANTS

INPUT, T, B = 5, 6, 3
FORGETFUL = ("feedforward", "feedforward_gated")
REMEMBER = [name for name in CORES if name not in FORGETFUL]
OTHER_STATES = ["lt, normalised"]  # variants whose state has other parts
every_core = pytest.mark.parametrize("name", [*CORES, *OTHER_STATES])
every_core_and_variant = pytest.mark.parametrize("name", [*CORES, *VARIANTS])
every_memory = pytest.mark.parametrize("name", [*REMEMBER, *OTHER_STATES])


def build(name: str, **changes) -> Core:
    name, variant = VARIANTS.get(name, (name, {}))
    changes = variant | changes
    tiny = {"layers": 2, "width": 8, "heads": 2, "feedforward": 7, "stack_depth": 3}
    options = {key: value for key, value in tiny.items() if key in CORES[name].options()}
    core = build_core(name, INPUT, **(options | changes)).double()
    assert all(parameter.dtype == torch.float64 for parameter in core.parameters())
    return core


def inputs(length: int = T, batch: int = B) -> Tensor:
    return torch.randn(length, batch, INPUT, dtype=torch.float64)


def resets(length: int = T, batch: int = B) -> Tensor:
    """Reset column b at row b + 1, and the last column at row 0, too."""
    is_first = torch.zeros(length, batch, dtype=torch.bool)
    for b in range(batch):
        is_first[(b + 1) % length, b] = True
    is_first[0, -1] = True
    return is_first


def never(length: int = T, batch: int = B) -> Tensor:
    return torch.zeros(length, batch, dtype=torch.bool)


def used_state(core: Core, batch: int = B):
    """Return a state that the core has reached from inputs."""
    with torch.no_grad():
        return core.unroll(inputs(4, batch), core.initial_state(batch), never(4, batch))[1]


def tensors(state) -> list[Tensor]:
    if isinstance(state, Tensor):
        return [state]
    return [tensor for part in state for tensor in tensors(part)]


def rebuilt(state, leaves: list[Tensor]):
    """Return a state of the same structure with new tensors."""
    following = iter(leaves)
    return map_state(lambda _: next(following), state)


def assert_same(actual, expected, atol: float = 1e-12):
    assert len(tensors(actual)) == len(tensors(expected))
    for one, other in zip(tensors(actual), tensors(expected), strict=True):
        torch.testing.assert_close(one, other, atol=atol, rtol=0)


def same_structure(one, other) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.shape == other.shape
    return type(one) is type(other) and all(map(same_structure, one, other))


@every_core_and_variant
def test_unroll_is_a_loop_of_forget_and_step(name):
    core, x, is_first = build(name), inputs(), resets()
    state = used_state(core)
    y, final = core.unroll(x, state, is_first)
    with kernels.backend("reference"):  # the reference defines the results
        expected, expected_final = unroll_by_steps(core, x, state, is_first)
    assert y.shape == (T, B, core.output_size)
    assert_same(y, expected, 1e-10)
    assert_same(final, expected_final, 1e-10)


@pytest.mark.parametrize("name", [name for name in CORES if "heads" in CORES[name].options()])
def test_heads_may_have_a_single_number(name):
    core, x, is_first = build(name, width=2), inputs(), resets()
    y, final = core.unroll(x, core.initial_state(B), is_first)
    with kernels.backend("reference"):
        expected, expected_final = unroll_by_steps(core, x, core.initial_state(B), is_first)
    assert_same(y, expected, 1e-10)
    assert_same(final, expected_final, 1e-10)


@every_core
def test_unroll_is_a_loop_at_the_published_sizes(name):
    """Use the reference only: the kernels are tested at these sizes in tests/kernels."""
    name, variant = VARIANTS.get(name, (name, {}))
    core = build_core(name, INPUT, **variant).double()
    x, is_first, state = inputs(3, 2), resets(3, 2), core.initial_state(2)
    with kernels.backend("reference"):
        y, final = core.unroll(x, state, is_first)
        expected, expected_final = unroll_by_steps(core, x, state, is_first)
    assert_same(y, expected, 1e-10)
    assert_same(final, expected_final, 1e-10)


@every_core_and_variant
@pytest.mark.parametrize("cut", [1, 2, T - 1])
def test_the_state_carries_all_that_a_later_unroll_needs(name, cut):
    core, x, is_first = build(name), inputs(), resets()
    state = used_state(core)
    whole, final = core.unroll(x, state, is_first)
    before, between = core.unroll(x[:cut], state, is_first[:cut])
    after, expected_final = core.unroll(x[cut:], between, is_first[cut:])
    assert_same(torch.cat([before, after]), whole)
    assert_same(final, expected_final)


@every_core_and_variant
@pytest.mark.parametrize("row", [0, 3, T - 1])
def test_a_reset_is_a_fresh_start(name, row):
    core, x, is_first = build(name), inputs(), never()
    is_first[row] = True
    y, final = core.unroll(x, used_state(core), is_first)
    fresh, fresh_final = core.unroll(x[row:], core.initial_state(B), never(T - row))
    assert_same(y[row:], fresh)
    assert_same(final, fresh_final)


@every_memory
def test_a_reset_forgets_its_own_column_only(name):
    core, x, is_first = build(name), inputs(), never()
    state = used_state(core)
    is_first[3, 1] = True
    kept, _ = core.unroll(x, state, never())
    y, _ = core.unroll(x, state, is_first)
    assert_same(y[:, [0, 2]], kept[:, [0, 2]])
    assert_same(y[:3, 1], kept[:3, 1])
    assert (y[3:, 1] - kept[3:, 1]).abs().amax(-1).min() > 1e-6


@every_memory
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_before_a_reset_reaches_neither_output_nor_gradient(name, bad):
    core, is_first = build(name), never()
    is_first[0, 1] = True
    x = inputs().requires_grad_()
    leaves = [tensor.clone() for tensor in tensors(used_state(core))]
    for leaf in leaves:
        leaf[1] = bad
        leaf.requires_grad_()
    y, final = core.unroll(x, rebuilt(core.initial_state(B), leaves), is_first)
    (y.square().sum() + sum(tensor.square().sum() for tensor in tensors(final))).backward()
    assert all(tensor.isfinite().all() for tensor in [y, *tensors(final), x.grad])
    assert all(parameter.grad.isfinite().all() for parameter in core.parameters())
    assert all((leaf.grad[1] == 0).all() for leaf in leaves)


@pytest.mark.parametrize("name", [*REMEMBER, *VARIANTS])
def test_nan_in_an_old_episode_reaches_no_later_one(name):
    core, x, is_first = build(name), inputs(), never()
    is_first[3, 1] = True
    state = used_state(core)
    clean, clean_final = core.unroll(x, state, is_first)
    x[1, 1] = torch.nan
    y, final = core.unroll(x, state, is_first)
    assert y[1:3, 1].isnan().all()
    y[1:3, 1] = clean[1:3, 1]
    assert_same(y, clean)
    assert_same(final, clean_final)


@every_core_and_variant
def test_streams_do_not_see_each_other(name):
    core, x, is_first = build(name), inputs(), resets()
    state, order = used_state(core), torch.tensor([2, 0, 1])
    y, final = core.unroll(x, state, is_first)
    moved = map_state(lambda tensor: tensor[order], state)
    permuted, permuted_final = core.unroll(x[:, order], moved, is_first[:, order])
    assert_same(permuted, y[:, order])
    assert_same(permuted_final, map_state(lambda tensor: tensor[order], final))


@every_core
def test_no_gradient_crosses_a_reset(name):
    core, is_first = build(name), never()
    is_first[3] = True
    x = inputs().requires_grad_()
    y, _ = core.unroll(x, used_state(core), is_first)
    (gradient,) = torch.autograd.grad(y[3:].square().sum(), x)
    assert (gradient[:3] == 0).all()
    assert (gradient[3:].abs().amax((1, 2)) > 0).all()


@every_memory
def test_gradient_flows_back_through_time(name):
    core, x = build(name), inputs().requires_grad_()
    y, _ = core.unroll(x, core.initial_state(B), never())
    (gradient,) = torch.autograd.grad(y[-1].square().sum(), x)
    assert (gradient.abs().amax(-1) > 1e-12).all()


@pytest.mark.parametrize("name", FORGETFUL)
def test_feedforward_has_no_memory(name):
    core, x = build(name), inputs().requires_grad_()
    y, _ = core.unroll(x, core.initial_state(B), never())
    (gradient,) = torch.autograd.grad(y[-1].sum(), x)
    assert (gradient[:-1] == 0).all()


@every_memory
def test_gradient_reaches_every_part_of_the_initial_state_and_every_parameter(name):
    core, x = build(name), inputs()
    leaves = [tensor.clone().requires_grad_() for tensor in tensors(used_state(core))]
    y, _ = core.unroll(x, rebuilt(core.initial_state(B), leaves), never())
    y.square().sum().backward()
    assert all((leaf.grad.flatten(1).abs().amax(1) > 0).all() for leaf in leaves)
    assert all(parameter.grad.abs().max() > 0 for parameter in core.parameters())


@pytest.mark.parametrize("name", [*REMEMBER, *VARIANTS])
@pytest.mark.usefixtures("shapes_unchecked")
def test_gradients_in_double_through_time(name):
    """Check gradients of outputs and final state by inputs, initial state and every parameter."""
    core = build(name, **({"width": 4} | _one_small_layer(name)))
    x, is_first = inputs(4, 2).requires_grad_(), resets(4, 2)[:, [1, 0]]
    is_first[0] = False  # otherwise the initial state would not matter
    state = used_state(core, 2)
    leaves = [tensor.clone().requires_grad_() for tensor in tensors(state)]
    names, weights = zip(*core.named_parameters(), strict=True)

    def outputs(x, *rest):
        state_leaves, parameters = rest[: len(leaves)], rest[len(leaves) :]
        named = dict(zip(names, parameters, strict=True))
        arguments = (x, rebuilt(state, list(state_leaves)), is_first)
        y, final = torch.func.functional_call(_Unroll(core), _prefixed(named), arguments)
        return (y, *tensors(final))

    assert torch.autograd.gradcheck(outputs, (x, *leaves, *weights), fast_mode=True)


class _Unroll(torch.nn.Module):
    def __init__(self, core: Core):
        super().__init__()
        self.core = core

    def forward(self, *arguments):
        return self.core.unroll(*arguments)


def _prefixed(named: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"core.{name}": tensor for name, tensor in named.items()}


def _one_small_layer(name: str) -> dict[str, int]:
    core, variant = VARIANTS.get(name, (name, {}))
    small = {"layers": 1, "feedforward": 3} if "feedforward" in CORES[core].options() else {}
    return small | variant


@every_core_and_variant
def test_one_row_is_one_step(name):
    core, x, state = build(name), inputs(1), used_state(build(name))
    y, final = core.unroll(x, state, never(1))
    with kernels.backend("reference"):
        expected, expected_final = core.step(x[0], state)
    assert_same(y[0], expected)
    assert_same(final, expected_final)


@every_core
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_and_state_keep_the_inputs_type(name, dtype):
    core, x = build(name).to(dtype), inputs().to(dtype)
    y, final = core.unroll(x, core.initial_state(B), resets())
    stepped, after = core.step(x[0], core.initial_state(B))
    parts = [y, stepped, *tensors(final), *tensors(after), *tensors(core.initial_state(B))]
    assert {tensor.dtype for tensor in parts} == {dtype}


@every_core
def test_a_fresh_state_is_zero_with_the_batch_first(name):
    core = build(name)
    fresh = core.initial_state(B)
    assert all((tensor == 0).all() for tensor in tensors(fresh))
    assert all(tensor.shape[0] == B for tensor in tensors(fresh))
    assert bool(tensors(fresh)) == (name not in FORGETFUL)


@every_core
def test_no_two_tensors_of_a_fresh_state_share_memory(name):
    """Otherwise the gradient of each would be the sum of both."""
    places = [
        tensor.untyped_storage().data_ptr() for tensor in tensors(build(name).initial_state(B))
    ]
    assert len(set(places)) == len(places)


@every_core
def test_a_state_keeps_its_structure(name):
    core = build(name)
    fresh = core.initial_state(B)
    assert isinstance(fresh, tuple)
    leaves_are_in_named_tuples = fresh if type(fresh) is tuple else (fresh,)
    assert all(hasattr(part, "_fields") for part in leaves_are_in_named_tuples)
    assert same_structure(core.unroll(inputs(), fresh, resets())[1], fresh)
    assert same_structure(core.step(inputs()[0], fresh)[1], fresh)


@every_core
def test_nothing_handed_in_is_written_to(name):
    core, x, is_first = build(name), inputs(), resets()
    state = used_state(core)
    copies = [tensor.clone() for tensor in (x, is_first, *tensors(state))]
    core.unroll(x, state, is_first)
    core.step(x[0], state)
    for tensor, copy in zip((x, is_first, *tensors(state)), copies, strict=True):
        assert torch.equal(tensor, copy)


@every_core_and_variant
@torch.no_grad()
def test_the_caller_may_write_into_an_output(name):
    core, x, state = build(name), inputs(), used_state(build(name))
    for y, after in (core.step(x[0], state), core.unroll(x[:1], state, never(1))):
        kept = map_state(torch.clone, after)
        y.fill_(torch.nan)
        assert_same(after, kept, 0)


@pytest.mark.parametrize("name", [n for n in CORES if "feature_map" in CORES[n].options()])
def test_feature_map_is_used(name):
    x = inputs()
    outputs = []
    for feature_map in ("softmax", "elu_sum"):
        torch.manual_seed(1)
        core = build(name, feature_map=feature_map)
        outputs.append(core.unroll(x, core.initial_state(B), never())[0])
    assert (outputs[0] - outputs[1]).abs().max() > 1e-6


def gradients(core: Core, loss: Tensor, x: Tensor) -> list[Tensor]:
    """Return zero for a tensor that only later steps depend on, such as a write to a stack."""
    return list(torch.autograd.grad(loss, [x, *core.parameters()], materialize_grads=True))


def test_the_fresh_state_none_has_no_history_to_leave():
    assert detach(None) is None


@every_memory
def test_one_step_of_gradient_is_a_loop_with_the_state_detached(name):
    core, x, is_first = build(name), inputs().requires_grad_(), resets()
    state, outputs = used_state(core), []
    y, final = unroll_truncated(core, x, state, is_first, 1)
    after = state
    for t in range(T):
        after = map_state(lambda tensor: tensor.detach(), after)
        row, after = core.unroll(x[t : t + 1], after, is_first[t : t + 1])
        outputs.append(row)
    assert_same(y, torch.cat(outputs), 0)
    assert_same(final, after, 0)
    assert_same(
        gradients(core, y.square().sum(), x),
        gradients(core, torch.cat(outputs).square().sum(), x),
    )


@every_memory
@pytest.mark.parametrize("bptt", [1, 2, 4])
def test_truncation_leaves_the_outputs_alone_and_cuts_the_gradient(name, bptt):
    core, x = build(name), inputs().requires_grad_()
    state = used_state(core)
    y, final = unroll_truncated(core, x, state, never(), bptt)
    whole, whole_final = core.unroll(x, state, never())
    assert_same(y, whole)
    assert_same(final, whole_final)
    (gradient,) = torch.autograd.grad(y[-1].square().sum(), x)
    start_of_last_piece = (T - 1) // bptt * bptt
    assert (gradient[:start_of_last_piece] == 0).all()
    assert (gradient[start_of_last_piece:].abs().amax(-1) > 0).all()


@every_memory
def test_truncation_detaches_the_initial_state(name):
    core = build(name)
    leaves = [tensor.clone().requires_grad_() for tensor in tensors(used_state(core))]
    state = rebuilt(core.initial_state(B), leaves)
    y, _ = unroll_truncated(core, inputs(), state, never(), 1)
    reached = torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)
    assert reached == (None,) * len(leaves)
