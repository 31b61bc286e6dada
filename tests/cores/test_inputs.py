"""`core(x)` is an unroll, and errors name inputs that a core cannot take."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

from fastweights.cores import CORES, build_core, unroll_by_steps
from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.kernels import map_state, refilled, tensors_of
from fastweights.kernels.delta_rule import DeltaRuleState

D, T, B = 6, 3, 2
SMALL = {"width": 8, "heads": 2, "layers": 1, "feedforward": 8, "window": 4}


def small(name: str):
    options = CORES[name].options()
    return build_core(name, D, **{option: SMALL[option] for option in SMALL if option in options})


@pytest.mark.parametrize("name", CORES)
def test_a_call_is_an_unroll(name):
    core, x = small(name), torch.randn(T, B, D)
    is_first = torch.tensor([[False, True]] * T)
    y, state = core(x)
    again, _ = core.unroll(x, core.initial_state(B), torch.zeros(T, B, dtype=torch.bool))
    torch.testing.assert_close(y, again)
    further, _ = core(x, state)
    torch.testing.assert_close(further, core(x, state, torch.zeros(T, B, dtype=torch.bool))[0])
    reset, _ = core(x, state, is_first)
    torch.testing.assert_close(reset, core.unroll(x, state, is_first)[0])


@pytest.mark.parametrize("name", CORES)
def test_a_wrong_width_is_named(name):
    core = small(name)
    with pytest.raises(ValueError, match=r"must have shape \[time, batch, 6\], not \[3, 2, 5\]$"):
        core(torch.randn(T, B, D - 1))
    with pytest.raises(ValueError, match=r"must have shape \[time, batch, 6\], not \[3, 6\]$"):
        core(torch.randn(T, D))
    first = torch.zeros(T, B, dtype=torch.bool)
    with pytest.raises(ValueError, match="must have shape"):
        core.unroll(torch.randn(T, B, D - 1), core.initial_state(B), first)
    with pytest.raises(ValueError, match=r"must have shape \[batch, 6\], not \[2, 5\]$"):
        core.step(torch.randn(B, D - 1), core.initial_state(B))
    with pytest.raises(ValueError, match=r"must have shape \[batch, 6\], not \[3, 2, 6\]$"):
        check_step(core, torch.randn(T, B, D), core.initial_state(B))


def refused(core, x, state, is_first) -> str:
    with pytest.raises(ValueError) as raised:
        check_inputs(core, x, state, is_first)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("name", CORES)
def test_a_wrong_kind_of_input_or_state_is_named(name):
    core, x, first = small(name), torch.randn(T, B, D), torch.zeros(T, B, dtype=torch.bool)
    fresh = core.initial_state(B)
    check_inputs(core, x, fresh, first)
    assert "not int64" in refused(core, x.long(), fresh, first)
    if list(core.parameters()):
        assert "must be float32, as its weights are, not float64" in refused(
            core, x.double(), fresh, first
        )
    assert "must be bool of shape [3, 2]" in refused(core, x, fresh, first.float())
    if tensors_of(fresh):
        double = map_state(Tensor.double, fresh)
        assert "must be float32, not float64" in refused(core, x, double, first)
    assert "not bool of shape [3, 1]" in refused(core, x, fresh, first[:, :1])
    for other, said in ((None, "not None"), (x, "not Tensor"), ([1], "not list")):
        message = refused(core, x, other, first)
        assert "state must be " in message and said in message
        assert message.endswith("; initial_state(2) creates a fresh state")


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("name", CORES)
def test_what_is_no_tensor_is_named(name):
    core, x, first = small(name), torch.randn(T, B, D), torch.zeros(T, B, dtype=torch.bool)
    fresh = core.initial_state(B)
    for other, kind in ((None, "None"), ([[0.0]], "list"), (first.numpy(), "ndarray")):
        with pytest.raises(ValueError, match=rf"must be bool of shape \[3, 2\], .* not {kind}$"):
            core.unroll(x, fresh, other)
        with pytest.raises(ValueError, match=rf"must be a tensor \[time, batch, 6\], not {kind}$"):
            core.unroll(other, fresh, first)
        with pytest.raises(ValueError, match=rf"must be a tensor \[batch, 6\], not {kind}$"):
            core.step(other, fresh)


@pytest.mark.parametrize("name", [name for name in CORES if not name.startswith("feedforward")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_a_state_of_another_precision_is_named(name, dtype):
    core, x, first = small(name), torch.randn(T, B, D), torch.zeros(T, B, dtype=torch.bool)
    state = map_state(lambda tensor: tensor.to(dtype), core.initial_state(B))
    said = rf"state.* must be float32, not {str(dtype).removeprefix('torch.')}; initial_state\(2\)"
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            with pytest.raises(ValueError, match=said):
                core.step(x[0], state)
            with pytest.raises(ValueError, match=said):
                core.unroll(x, state, first)


@pytest.mark.parametrize("name", [name for name in CORES if not name.startswith("feedforward")])
def test_a_state_of_another_batch_or_size_is_named(name):
    core, x, first = small(name), torch.randn(T, B, D), torch.zeros(T, B, dtype=torch.bool)
    message = refused(core, x, core.initial_state(B + 1), first)
    assert "must be a tensor of shape [2, " in message and "not of shape [3, " in message
    with pytest.raises(ValueError, match=r"of shape \[2, .* not of shape \[1, .*\(2\) creates"):
        core.step(x[0], core.initial_state(1))  # torch would broadcast it
    larger = SMALL | {"width": 16, "window": 5}
    options = {option: size for option, size in larger.items() if option in CORES[name].options()}
    wider = build_core(name, D, **options)
    assert "must be a tensor of shape [2, " in refused(core, x, wider.initial_state(B), first)


def test_what_is_computed_in_lower_precision_may_come_in():
    core, x = small("lstm"), torch.randn(T, B, D, dtype=torch.bfloat16)
    first = torch.zeros(T, B, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        check_inputs(core, x, core.initial_state(B), first)


@pytest.mark.parametrize("name", [name for name in CORES if list(small(name).parameters())])
@pytest.mark.parametrize("weights", [torch.float32, torch.float64])
def test_a_call_of_another_precision_leaves_the_core_usable(name, weights):
    core, x = small(name).to(weights), torch.randn(T, B, D, dtype=weights)
    other, said = (x.double(), "float32") if weights == torch.float32 else (x.float(), "float64")
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(ValueError, match=f"x of .* must be {said}, as its weights are, not float"),
    ):
        core(other)
    y, _ = core(x)
    assert y.dtype == weights


def test_a_memory_without_weights_says_what_precision_does_not_fit():
    class Sum(Core):
        """The sum of all inputs, always in float32."""

        input_size = output_size = D

        def initial_state(self, batch_size: int) -> DeltaRuleState:
            return DeltaRuleState(torch.zeros(batch_size, 1, 1, D))

        def step(self, x: Tensor, state: DeltaRuleState) -> tuple[Tensor, DeltaRuleState]:
            check_step(self, x, state)
            after = state.fast_weights + x[:, None, None]
            return after[:, 0, 0], DeltaRuleState(after)

        def unroll(self, x: Tensor, state: DeltaRuleState, is_first: Tensor):
            return unroll_by_steps(self, x, state, is_first)

    core, x = Sum(), torch.randn(B, D)
    with pytest.raises(ValueError, match="Sum: x is float64, and its state is not; initial_state"):
        core.step(x.double(), core.initial_state(B))
    core.step(x, core.initial_state(B))


@pytest.mark.parametrize("name", CORES)
def test_autocast_changes_no_state_of_a_step(name):
    """The input of a memory may be rounded; what it does with the input is not."""
    core, x = small(name), torch.randn(T, B, D)
    first, state = torch.zeros(T, B, dtype=torch.bool), core.initial_state(B)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        _, unrolled = core.unroll(x, state, first)
        for row in x:
            _, state = core.step(row, state)
    for found, wanted in zip(tensors_of(state), tensors_of(unrolled), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", [name for name in CORES if list(small(name).parameters())])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_half_precision_are_refused(name, dtype):
    """States would be kept in half precision, and count steps only up to 256."""
    core, x = small(name).to(dtype), torch.randn(T, B, D, dtype=dtype)
    with pytest.raises(ValueError, match=r"must be float32 or float64, .*torch\.autocast"):
        core(x)


def test_a_state_is_refilled_with_all_of_its_tensors_and_no_others():
    fresh = (small("lstm").initial_state(B), small("gru").initial_state(B))
    given = [torch.randn(B, 8) for _ in range(3)]
    assert tensors_of(refilled(fresh, iter(given))) == given
    for wrong in (given[:2], [*given, given[0]]):
        with pytest.raises(ValueError, match=rf"of 3 tensors cannot be filled with {len(wrong)}$"):
            refilled(fresh, wrong)


def all_choices(name: str):
    """Yield a small core for each value of the options that are choices."""
    yield small(name)
    options = CORES[name].options()
    for option, values in {"forget_gate": ("sigmoid", "exponential")}.items():
        for value in values if option in options else ():
            sizes = {size: SMALL[size] for size in SMALL if size in options}
            yield build_core(name, D, **sizes, **{option: value})


@pytest.mark.parametrize("name", CORES)
def test_a_core_can_be_copied_and_sent_to_other_processes(name):
    x = torch.randn(T, B, D)
    for core in all_choices(name):
        for again in (copy.deepcopy(core), pickle.loads(pickle.dumps(core))):
            torch.testing.assert_close(again(x)[0], core(x)[0])


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("rdn", {"width": "a"}, "core option width must be a whole number, not 'a'"),
        ("rdn", {"width": 32.0}, "core option width must be a whole number, not 32.0"),
        ("rdn", {"heads": True}, "core option heads must be a whole number, not True"),
        ("rdn", {"feature_map": 1}, "core option feature_map must be text, not 1"),
        ("lstm", {"forget_bias": "x"}, "core option forget_bias must be a number, not 'x'"),
        (
            "lstm",
            {"forget_bias": float("nan")},
            "core option forget_bias must be a number, not nan",
        ),
        ("lstm", {"forget_bias": float("inf")}, "'forget_bias' must be a finite number, not inf"),
        ("rdn", {"witdh": 32}, "did you mean width?"),
    ],
)
def test_an_option_of_another_type_is_named(name, changes, says):
    with pytest.raises(ValueError) as raised:
        build_core(name, D, **changes)
    assert says in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("size", [0, -1])
def test_a_wrong_input_size_is_named(size):
    with pytest.raises(ValueError, match="input size must be a whole number of at least 1, not"):
        build_core("lstm", size)
