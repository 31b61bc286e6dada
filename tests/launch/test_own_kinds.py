"""Kinds of cores in a user's module: sizes of presets, double precision, numbers of their own."""

import pytest
import torch

from fastweights.cores import build_core, import_core
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


def test_a_number_of_its_own_may_be_0(own_module):
    source = SOURCE.replace("rate: float = 0.5", "rate: float = 0.5\n    skip: int = 2")
    own_module("users_memory", source)
    import_core(CORE)
    build_core(CORE, 3, skip=0)
    with pytest.raises(ValueError, match="'width' must be at least 1"):
        build_core(CORE, 3, width=0)
