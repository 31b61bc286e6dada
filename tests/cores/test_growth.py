"""A core whose settings let its state grow logs one warning, with settings that bound it."""

import pytest
import torch

from fastweights.cores import CORES, build_core, core_config, growth
from fastweights.cores.unbounded import say_once

SMALL = {"layers": 1, "width": 16, "heads": 2, "feedforward": 8}


@pytest.fixture(autouse=True)
def _nothing_said_yet():
    say_once.cache_clear()


def with_map(name: str) -> list[str]:
    """Return the cores with this feature map; rdn_large differs from rdn only in its sizes."""
    return [core for core in CORES if name in CORES[core].options() and core != "rdn_large"]


def largest_state(core: str, **options: str | int) -> float:
    torch.manual_seed(0)
    net = build_core(core, 16, **SMALL, **options).double()
    x, never = torch.randn(40, 4, 16, dtype=torch.float64), torch.zeros(40, 4, dtype=torch.bool)
    with torch.no_grad():
        (state,) = net.unroll(x, net.initial_state(4), never)[1]
    return max(tensor.abs().max().nan_to_num(torch.inf).item() for tensor in state)


@pytest.mark.parametrize("feature_map", ["softmax", "elu_sum", "elu", "unit", "silu_unit"])
@pytest.mark.parametrize("core", with_map("feature_map"))
def test_the_warning_agrees_with_measured_growth(core, feature_map):
    """The warning agrees with the measured state, at the core's largest write strength."""
    options: dict[str, str | int] = {"feature_map": feature_map}
    if "max_write_strength" in CORES[core].options():
        options["max_write_strength"] = 2
    assert (growth(core, **options) is not None) == (largest_state(core, **options) > 1e6)


@pytest.mark.parametrize("core", with_map("recurrent_feature_map"))
def test_recurrent_keys_count_too(core):
    line = growth(core, feature_map="softmax", recurrent_feature_map="elu")
    assert "--core-recurrent-feature-map elu " in line
    assert "--core-feature-map" not in line
    assert largest_state(core, recurrent_feature_map="elu") > 1e6


@pytest.mark.parametrize("core", CORES)
def test_no_published_core_grows(core):
    assert growth(core) is None
    assert core_config(core)


def test_the_warning_is_logged_once(caplog):
    for _ in range(2):
        build_core("delta_lstm", 16, **SMALL, feature_map="elu")
    build_core("delta_lstm", 16, **SMALL)
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith("note: core delta_lstm: the keys of --core-feature-map elu")
    assert "\n" not in line
    assert "softmax, elu_sum, unit and silu_unit bound it" in line
    build_core("delta_lstm", 16, **SMALL, feature_map="identity")
    assert len(caplog.records) == 2
