"""The choice of the backend, its warnings and its refusals."""

import logging
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from kernel_cases import CASES, example
from remembered import forget_calls

from fastweights.kernels.delta_rule import DeltaRuleState
from fastweights.kernels.linear_attention import NormalisedState, normalised_linear_attention
from fastweights.kernels.machinery import cpu_build, dispatch
from fastweights.kernels.machinery.dispatch import (
    backend,
    requested_backend,
    restoring_backend,
    use_backend,
)
from fastweights.kernels.machinery.example import Example, make
from fastweights.kernels.machinery.signature import Sizes
from fastweights.kernels.registry import OPERATIONS


def test_auto_is_the_default_and_blocks_nest():
    assert requested_backend() == "auto"
    with backend("reference"):
        with backend("cpu"):
            assert requested_backend() == "cpu"
        assert requested_backend() == "reference"


def test_the_environment_forces_a_backend(monkeypatch):
    dispatch._environment.cache_clear()
    monkeypatch.setenv("FASTWEIGHTS_BACKEND", "reference")
    assert requested_backend() == "reference"
    dispatch._environment.cache_clear()
    monkeypatch.setenv("FASTWEIGHTS_BACKEND", "gpu")
    wanted = "^FASTWEIGHTS_BACKEND: unknown kernel backend 'gpu'; known: auto"
    with pytest.raises(ValueError, match=wanted):
        requested_backend()
    dispatch._environment.cache_clear()


@pytest.mark.parametrize("before", [None, "auto", "chunked"])
def test_a_backend_of_the_process_can_be_undone(before, monkeypatch):
    monkeypatch.delenv("FASTWEIGHTS_BACKEND")
    if before is not None:
        monkeypatch.setenv("FASTWEIGHTS_BACKEND", before)
    dispatch._environment.cache_clear()
    with pytest.raises(KeyError), restoring_backend():
        use_backend("reference")
        assert requested_backend() == "reference"
        raise KeyError
    assert requested_backend() == (before or "auto")
    assert os.environ.get("FASTWEIGHTS_BACKEND") == before
    dispatch._environment.cache_clear()


def choose(name: str, device: str = "cpu", time: int = 50, head: int = 8) -> str:
    operation = OPERATIONS[name]
    case = make(operation, {"T": time, "B": 1, "H": 1, "K": head, "V": head, "D": head})
    sizes = operation.signature.sizes(case.tensors)
    return operation.choose(operation.request(torch.device(device), torch.float32, sizes))


@pytest.mark.compiler
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_auto_takes_the_kernel_of_the_device(name):
    assert choose(name) == "cpu"


def test_large_heads_say_once_that_they_run_slower(caplog):
    dispatch.say_once.cache_clear()
    with caplog.at_level(logging.WARNING, "fastweights"):
        assert choose("delta_rule", head=129) == "chunked"
        assert choose("delta_rule", head=129) == "chunked"
        assert choose("delta_rule", head=129, time=2) == "reference"
        assert choose("recurrent_delta_rule", head=65) == "reference"
    assert [record.message for record in caplog.records] == [
        f"{name} runs on the slower {chosen} backend: head size K = {size} is above {widest}"
        for name, chosen, size, widest in (
            ("delta_rule", "chunked", 129, 128),
            ("delta_rule", "reference", 129, 128),
            ("recurrent_delta_rule", "reference", 65, 64),
        )
    ]


def test_a_large_head_gives_the_right_numbers():
    case = make(OPERATIONS["delta_rule"], {"T": 9, "B": 2, "H": 1, "K": 130, "V": 5})
    found = case.run()
    with backend("reference"):
        expected = case.run()
    torch.testing.assert_close(found, expected)


def test_a_forced_backend_refuses_what_it_cannot_do():
    case = make(OPERATIONS["delta_rule"], {"T": 2, "B": 1, "H": 1, "K": 5, "V": 129})
    with (
        backend("cpu"),
        pytest.raises(ValueError, match=r"cpu backend: head size V = 129 is above 128"),
    ):
        case.run()
    with backend("chunked"), pytest.raises(ValueError, match="delta_rnn has no backend 'chunked'"):
        example("delta_rnn", 3).run()


def test_a_tensor_on_another_device_is_not_silently_slow(caplog):
    dispatch.say_once.cache_clear()
    with caplog.at_level(logging.WARNING, "fastweights"):
        chosen = choose("self_referential", device="cuda")
    operation = OPERATIONS["self_referential"]
    if chosen != "cuda":
        assert "self_referential runs on the slower reference backend" in caplog.text
    request = operation.request(torch.device("cuda"), torch.float32, Sizes())
    assert operation.backends["cpu"].why_not(request) is not None


@pytest.mark.compiler
def test_a_failing_compile_is_one_line(monkeypatch, tmp_path, caplog):
    """`auto` falls back and gives the reason; a forced cpu backend raises."""
    monkeypatch.setenv("FASTWEIGHTS_CACHE", str(tmp_path))
    monkeypatch.setattr(cpu_build, "why_no_openmp", lambda path: "")
    monkeypatch.setattr(cpu_build, "_run", lambda command: "lanes.h:1:1: error: no such thing")
    cpu_build.library.cache_clear()
    dispatch.say_once.cache_clear()
    with caplog.at_level(logging.WARNING, "fastweights"):
        assert choose("delta_rnn", head=4) == "reference"
    assert "failed on cpu.cpp: lanes.h:1:1: error: no such thing" in caplog.text
    case = example("delta_rnn", 4)
    forget_calls()
    with backend("cpu"), pytest.raises(ValueError, match="error: no such thing"):
        case.run()
    forget_calls()
    cpu_build.library.cache_clear()
    assert not list(tmp_path.glob("*.so"))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_wrong_shape_names_the_argument(name, options):
    case = example(name, 5, **options)
    for place, argument in enumerate(case.operation.signature.arguments):
        wrong = list(case.tensors)
        wrong[place] = wrong[place].unsqueeze(0)
        with pytest.raises(ValueError, match=rf"{name}: {argument.name} has shape .* expected \["):
            Example(case.operation, wrong, case.options).run()


def test_an_argument_that_is_no_tensor_is_named(shapes_unchecked):
    *inputs, weights = example("delta_rule", 5).tensors
    delta_rule = OPERATIONS["delta_rule"]
    for place, name in enumerate(("q", "k", "v", "beta", "is_first")):
        given = [*inputs[:place], None, *inputs[place + 1 :]]
        with pytest.raises(TypeError, match=f"delta_rule: {name} is a NoneType, expected a tensor"):
            delta_rule(*given, DeltaRuleState(weights))
    with pytest.raises(TypeError, match=r"state.fast_weights is a list, expected a tensor"):
        delta_rule(*inputs, DeltaRuleState([1.0]))
    with pytest.raises(TypeError, match=r"state is a Tensor, expected DeltaRuleState\(fast_weigh"):
        delta_rule(*inputs, weights)


def test_a_tuple_of_another_length_is_refused(shapes_unchecked):
    *inputs, weights = example("delta_rule", 5).tensors
    for given in ((), (weights, weights)):
        kind = f"tuple of length {len(given)}"
        with pytest.raises(TypeError, match=rf"delta_rule: state is a {kind}, expected DeltaRule"):
            OPERATIONS["delta_rule"](*inputs, given)


def test_weights_of_another_kind_are_refused(shapes_unchecked):
    case = example("recurrent_delta_rule", 5)
    *call, recurrent, _, _ = case.operation.signature.unflatten(case.tensors, [None, None])
    expected = r"expected RecurrentWeights\(query, key, value, strength\)"
    for given, kind in ((recurrent[:3], "tuple of length 3"), (None, "NoneType")):
        message = f"recurrent_delta_rule: recurrent is a {kind}, {expected}"
        with pytest.raises(TypeError, match=message):
            case.operation(*call, given)
    case = example("lstm", 5)
    *call, _ = case.operation.signature.unflatten(case.tensors, [])
    with pytest.raises(TypeError, match=r"lstm: \w+ is a NoneType, expected a tensor"):
        case.operation(*call, None)


def test_an_option_that_is_a_list_is_named():
    case = example("recurrent_delta_rule", 5)
    message = r"recurrent_delta_rule: feature_map is \['softmax'\], known: softmax, "
    with pytest.raises(ValueError, match=message):
        Example(case.operation, case.tensors, {"feature_map": ["softmax"]}).run()


def test_a_wrong_size_says_what_is_expected():
    case = example("delta_rule", 5)
    case.tensors[3] = case.tensors[3][:, :, :1]
    message = (
        r"delta_rule: beta has shape \[7, 5, 1\], expected \[T, B, H\] with T = 7, B = 5, H = 2"
    )
    with pytest.raises(ValueError, match=message):
        case.run()


@pytest.mark.compiler
def test_heads_without_keys_are_not_for_the_cpu_kernel():
    case = example("recurrent_delta_rule", 0, 3)
    message = "recurrent_delta_rule cannot run on the cpu backend: head size K is 0"
    with backend("cpu"), pytest.raises(ValueError, match=message):
        case.run()
    with backend("reference"):
        expected = case.run()
    for found, right in zip(case.run(), expected, strict=True):
        assert torch.equal(found, right)


@pytest.mark.parametrize("wrong", ["shape", "dtype"])
def test_a_wrong_key_sum_is_named(shapes_unchecked, wrong):
    q, k, v = torch.rand(3, 4, 2, 1, 3)
    weights, is_first = torch.zeros(2, 1, 3, 3), torch.zeros(4, 2, dtype=torch.bool)
    key_sum = torch.zeros(2, 1, 4) if wrong == "shape" else torch.zeros(2, 1, 3).int()
    with pytest.raises(ValueError, match=f"normalised_linear_attention: state.key_sum has {wrong}"):
        normalised_linear_attention(q, k, v, is_first, NormalisedState(weights, key_sum))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_without_a_step_the_state_is_a_copy(name, options):
    """The caller may write into the state that it gets."""
    case = example(name, 3, **options)
    case.tensors[:] = [
        tensor[:0] if "T" in argument.axes else tensor
        for tensor, argument in zip(case.tensors, case.operation.signature.arguments, strict=True)
    ]
    given = case.tensors[-len(case.operation.signature.state) :]
    with backend("reference"):
        _, *state = case.run()
    for found, tensor in zip(state, given, strict=True):
        assert torch.equal(found, tensor) and found.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_wrong_dtype_names_the_argument(name, options):
    case = example(name, 5, **options)
    for place, argument in enumerate(case.operation.signature.arguments):
        wrong = list(case.tensors)
        wrong[place] = wrong[place].int()
        with pytest.raises(ValueError, match=rf"{name}: {argument.name} has dtype torch.int32"):
            Example(case.operation, wrong, case.options).run()


def test_a_wrong_device_names_the_argument():
    case = example("delta_rule", 5)
    case.tensors[2] = case.tensors[2].to("meta")
    with pytest.raises(ValueError, match="delta_rule: v is on meta, expected cpu"):
        case.run()


def test_an_unknown_version_lists_the_known():
    case = example("delta_lstm", 3)
    with backend("cpu"), pytest.raises(ValueError, match="version is 'E', known: A, B, C, D"):
        Example(case.operation, case.tensors, {"version": "E"}).run()


@pytest.mark.compiler
def test_a_backend_for_the_whole_process_holds_for_calls_already_prepared(monkeypatch):
    monkeypatch.setenv(dispatch.ENVIRONMENT_VARIABLE, "auto")
    dispatch._environment.cache_clear()
    case, loops = example("delta_rule", 4).to(torch.float32), []
    backends = OPERATIONS["delta_rule"].backends
    function = backends["reference"].function
    watched = replace(
        backends["reference"], function=lambda *call: loops.append(1) or function(*call)
    )
    monkeypatch.setitem(backends, "reference", watched)
    try:
        with torch.no_grad():
            for name, expected in (("auto", 0), ("auto", 0), ("reference", 1), ("auto", 1)):
                use_backend(name)
                case.run()
                assert len(loops) == expected
    finally:
        monkeypatch.undo()
        dispatch._environment.cache_clear()


def test_the_choice_is_made_for_each_device(monkeypatch):
    operation = OPERATIONS["delta_rule"]
    stub = SimpleNamespace(why_not=lambda request: None)
    monkeypatch.setitem(operation.backends, "cuda", stub)
    sizes = Sizes(operation.signature.check(example("delta_rule", 4).tensors))
    chosen = []
    for device in ("meta", "cuda:0", "meta"):
        state = SimpleNamespace(device=torch.device(device), dtype=torch.float32, is_cpu=False)
        chosen.append(operation._choose_once(state, sizes, ()))
    assert chosen == ["reference", "cuda", "reference"]


def test_a_call_prepared_for_some_strides_is_not_taken_for_others():
    case = example("delta_rule", 4).to(torch.float32)
    operation, call = case.operation, list(case.tensors)
    q = call[0]
    apart = torch.empty(*q.shape[:-1], 2 * q.shape[-1])[..., ::2].copy_(q)
    sliced = torch.cat([q, q], -1)[..., : q.shape[-1]]
    signature = operation.signature
    with torch.no_grad():
        expected = operation(*signature.unflatten(call, []))[0]
        for other in (apart, sliced, q.transpose(0, 1).contiguous().transpose(0, 1), q):
            assert torch.equal(operation(*signature.unflatten([other, *call[1:]], []))[0], expected)


@pytest.mark.compiler
def test_a_call_prepared_without_gradients_is_not_taken_for_one_with_them():
    case = example("delta_rule", 4).to(torch.float32)
    q, *others = [tensor.detach() for tensor in case.tensors]
    with torch.no_grad():
        expected = Example(case.operation, [q, *others], {}).run()[0]
    for wants in (False, True, False):
        y = Example(case.operation, [q.clone().requires_grad_(wants), *others], {}).run()[0]
        assert y.requires_grad is wants
        assert torch.equal(y, expected)
