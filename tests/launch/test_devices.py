"""Which precision a machine gets, and what a wrong name is told."""

from pathlib import Path

import pytest
import torch

from launch import devices
from launch.assembly import plan_for
from launch.devices import PRECISIONS, choose_precision, processors, use_threads
from launch.options import RunOptions
from launch.schedules import Plan

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_what_was_asked_for_is_used(name):
    assert choose_precision(name, CPU) == name


def test_auto_is_bfloat16_only_where_the_processor_multiplies_it():
    described = Path("/proc/cpuinfo")
    flags = described.read_text() if described.exists() else ""
    expected = "bfloat16" if "amx_bf16" in flags or "avx512_bf16" in flags else "float32"
    assert choose_precision("auto", CPU) == expected


def test_unknown_precision_lists_the_known():
    with pytest.raises(ValueError, match="--precision 'half'") as error:
        choose_precision("half", CPU)
    assert all(name in str(error.value) for name in PRECISIONS)


@pytest.mark.parametrize("able", [(True, True), (True, False), (False, True)])
def test_auto_is_float32_where_not_all_multiply_bfloat16(able, monkeypatch):
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(
        devices, "_multiplies_bfloat16", dict(zip((gpu, CPU), able, strict=True)).get
    )
    assert choose_precision("auto", gpu, CPU) == ("bfloat16" if all(able) else "float32")


@pytest.mark.parametrize(("schedule", "same_bits"), [("lockstep", True), ("asynchronous", False)])
def test_a_run_computes_float32_in_float32(schedule, same_bits, monkeypatch):
    """On a GPU; in lockstep to the same bits each time."""
    for name in ("allow_tf32", "deterministic"):
        monkeypatch.setattr(torch.backends.cudnn, name, not same_bits)
    plan_for(RunOptions(env="Catch", schedule=schedule, num_threads=1))
    assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.deterministic == same_bits


@pytest.mark.parametrize("name", PRECISIONS)
def test_whoever_acts_is_told_what_auto_came_to(name):
    plan = Plan(RunOptions(device="cpu", precision=name))
    assert plan.options.precision == choose_precision(name, CPU)


@pytest.mark.parametrize(
    ("count", "processes", "threads"),
    [(3, 1, 3), (0, 1, processors()), (0, processors(), 1), (0, 2 * processors(), 1)],
)
def test_threads_are_those_asked_for_or_a_share_of_the_cores(count, processes, threads):
    use_threads(count, processes)
    assert torch.get_num_threads() == threads
