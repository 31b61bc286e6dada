"""Kinds of cores in a user's module: sizes of presets, double precision, numbers of their own."""

import pytest
import torch

from fastweights.cores import build_core, import_core, set_by_models
from fastweights.experiments.language_model.options import language_preset
from fastweights.experiments.sequences import presets as sequence_presets
from fastweights.host.user_modules import BrokenModule
from fastweights.launch import atari as train_command
from fastweights.tasks import CodeExecution
from fastweights.training import preset
from tests.launch.test_own_cores import CORE, SOURCE

WITH_DROPOUT = SOURCE.replace("+ self.write(x)", "+ self.drop(self.write(x))").replace(
    "self.write = nn", "self.drop = nn.Dropout(0.25)\n        self.write = nn"
)
LITTLE = ("--num-threads", 1, "--num-envs", 2, "--batch-size", 2, "--unroll-length", 5)


def test_kinds_of_one_class_keep_a_preset_s_sizes(own_module):
    own_module("users_memory", SOURCE + 'twin = alone(Fading, "Fading sum", Sizes(rate=0.7))')
    import_core("users_memory:fading")
    import_core("users_memory:twin")
    widths = {preset("maze", f"users_memory:{name}").core_width for name in ("fading", "twin")}
    assert widths == {64}


def test_a_field_named_as_one_of_ours_is_the_user_s(own_module):
    fields = "    rate: float = 0.5\n    embed: int = 4\n    positions: float = 2.0\n"
    own_module("users_memory", SOURCE.replace("    rate: float = 0.5\n", fields))
    import_core(CORE)
    assert set_by_models(CORE) == set()
    assert set_by_models("transformer") == {"embed", "dropout", "positions"}
    assert language_preset("small", CORE).build(64).core.output_size == 128
    assert sequence_presets.small(CORE, CodeExecution()).build().core.output_size == 64


def test_a_core_may_be_built_in_double_precision(own_module):
    own_module("users_memory", SOURCE)
    import_core(CORE)
    torch.set_default_dtype(torch.float64)
    try:
        core = build_core(CORE, 3)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {parameter.dtype for parameter in core.parameters()} == {torch.float64}


def test_a_bug_in_a_module_keeps_its_traceback(own_module):
    own_module("users_memory", 'N = int("x")')
    with pytest.raises(BrokenModule, match="cannot import the module of 'users_memory:fading'"):
        train_command.main(["--core", CORE])


def test_a_value_error_of_a_constructor_says_where(own_module):
    own_module("users_memory", SOURCE.replace("super().__init__()", 'int("x")', 1))
    import_core(CORE)
    with pytest.raises(ValueError, match=r"invalid literal .* \(users_memory.py, line \d+\)"):
        build_core(CORE, 3)


def of_state(fresh: str, after: str) -> str:
    """Return the module with another form of state."""
    source = SOURCE.replace(
        "class Sum(", "class Pair(NamedTuple):\n    a: tuple\n    b: Tensor\n\n\nclass Sum("
    )
    source = source.replace("return Sum(self.w", "zero = Sum(self.w").replace(
        "self.output_size))", f"self.output_size))\n        return {fresh}", 1
    )
    first = "return state if isinstance(state, Tensor) else first(state[0])"
    source = source.replace("state.sum", "first(state)").replace("Sum(total)", after)
    return f"{source}\n\ndef first(state):\n    {first}\n"


@pytest.mark.parametrize(
    ("fresh", "after", "shown"),
    [
        ("(zero, zero)", "(Sum(total), Sum(total))", [["sum"], ["sum"]]),
        ("Pair(zero, zero.sum)", "Pair(Sum(total), total)", [["a_sum", "b"]]),
    ],
)
def test_states_of_several_parts_are_shown(fresh, after, shown, own_module):
    own_module("users_memory", of_state(fresh, after))
    import_core(CORE)
    core = build_core(CORE, 3)
    layers = core.inspect(torch.ones(2, 3), core.initial_state(2))
    assert [list(layer) for layer in layers] == shown
    y, _ = core.step(torch.ones(2, 3), core.initial_state(2))
    for layer in layers:
        for tensor in layer.values():
            torch.testing.assert_close(tensor, y)


def test_a_plain_tuple_of_tensors_is_refused(own_module):
    own_module("users_memory", of_state("(zero.sum,)", "(total,)"))
    import_core(CORE)
    with pytest.raises(ValueError, match="is a plain tuple of tensors: return a NamedTuple"):
        build_core(CORE, 3)


def test_dropout_in_an_agent_s_memory_is_noted(own_module, tmp_path, caplog):
    own_module("users_memory", WITH_DROPOUT)
    words = ("--env", "Catch", "--total-steps", "60", "--core-width", "8", "--savedir", tmp_path)
    assert train_command.main([*map(str, ("--core", CORE, *words, *LITTLE))]) == 0
    assert "core users_memory:fading has dropout" in caplog.text


def test_a_number_of_its_own_may_be_0(own_module):
    source = SOURCE.replace("rate: float = 0.5", "rate: float = 0.5\n    skip: int = 2")
    own_module("users_memory", source)
    import_core(CORE)
    build_core(CORE, 3, skip=0)
    with pytest.raises(ValueError, match="'width' must be at least 1"):
        build_core(CORE, 3, width=0)
