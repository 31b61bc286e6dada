"""Kinds of cores in a user's module: sizes of presets, double precision, numbers of their own."""

import pytest
import torch

from fastweights.cores import build_core, import_core
from fastweights.host.user_modules import BrokenModule
from fastweights.launch import atari as train_command
from fastweights.training import preset
from tests.launch.test_own_cores import CORE, SOURCE


def test_kinds_of_one_class_keep_a_preset_s_sizes(own_module):
    own_module("users_memory", SOURCE + 'twin = alone(Fading, "Fading sum", Sizes(rate=0.7))')
    import_core("users_memory:fading")
    import_core("users_memory:twin")
    widths = {preset("maze", f"users_memory:{name}").core_width for name in ("fading", "twin")}
    assert widths == {64}


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


def test_a_number_of_its_own_may_be_0(own_module):
    source = SOURCE.replace("rate: float = 0.5", "rate: float = 0.5\n    skip: int = 2")
    own_module("users_memory", source)
    import_core(CORE)
    build_core(CORE, 3, skip=0)
    with pytest.raises(ValueError, match="'width' must be at least 1"):
        build_core(CORE, 3, width=0)
