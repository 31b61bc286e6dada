"""Precision and number of threads on a machine, and errors for unknown names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fastweights.host import devices
from fastweights.host.devices import (
    PRECISIONS,
    choose_precision,
    compute_exactly,
    processors,
    use_threads,
)
from fastweights.launch import atari
from fastweights.training.assembly import plan_for
from fastweights.training.options import RunOptions
from fastweights.training.schedules.choice import plan_of

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.fixture
def as_the_machine_is(monkeypatch):
    """Remove the variables with which the tests fix `auto`."""
    for name in ("FASTWEIGHTS_CPUS", "FASTWEIGHTS_PRECISION"):
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_what_was_asked_for_is_used(name):
    assert choose_precision(name, CPU) == name


def test_auto_is_bfloat16_only_where_it_is_faster(as_the_machine_is):
    described = Path("/proc/cpuinfo")
    flags = described.read_text() if described.exists() else ""
    held_to_less = "avx512" not in os.environ.get("ATEN_CPU_CAPABILITY", "avx512")
    gains = "amx_bf16" in flags or ("avx512_bf16" in flags and "AuthenticAMD" in flags)
    expected = "bfloat16" if gains and not held_to_less else "float32"
    assert choose_precision("auto", CPU) == expected


@pytest.mark.parametrize(
    ("machine", "processor", "amx", "avx512", "expected"),
    [
        ("x86_64", "Intel(R) Xeon(R) Processor", True, True, "bfloat16"),
        ("AMD64", "Intel64 Family 6 Model 143", True, False, "bfloat16"),
        ("x86_64", "Intel(R) Xeon(R) Processor", False, True, "float32"),  # AMX is hidden
        ("x86_64", "AMD EPYC 9R14", False, True, "bfloat16"),
        ("x86_64", "AMD EPYC 7R13", False, False, "float32"),
        ("aarch64", "", True, True, "float32"),
    ],
)
def test_auto_goes_by_the_processor(
    as_the_machine_is, monkeypatch, machine, processor, amx, avx512, expected
):
    monkeypatch.setattr(devices.platform, "machine", lambda: machine)
    monkeypatch.setattr(devices, "processor_name", lambda: processor)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert choose_precision("auto", CPU) == expected


@pytest.mark.parametrize("capability", ["avx2", "default"])
def test_auto_is_float32_where_pytorch_is_held_to_older_instructions(as_the_machine_is, capability):
    """PyTorch would emulate bfloat16, which is three times slower than float32."""
    asked = (
        "import torch; from fastweights.host.devices import choose_precision; "
        "print(choose_precision('auto', torch.device('cpu')))"
    )
    told = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=ROOT,
        env={**os.environ, "ATEN_CPU_CAPABILITY": capability},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["float32"]


@pytest.mark.parametrize("told", ["float32", "bfloat16"])
def test_the_environment_says_what_auto_is_and_no_more(told, monkeypatch):
    monkeypatch.setenv("FASTWEIGHTS_PRECISION", told)
    assert choose_precision("auto", CPU) == told
    assert [choose_precision(name, CPU) for name in PRECISIONS[1:]] == [*PRECISIONS[1:]]


def test_the_tests_fix_what_auto_is_in_the_processes_that_they_start_too():
    """Otherwise a test's result would depend on the processor."""
    asked = (
        "import torch; from fastweights.host.devices import choose_precision, processors; "
        "print(choose_precision('auto', torch.device('cpu')), processors())"
    )
    told = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True
    )
    fixed = [os.environ[f"FASTWEIGHTS_{name}"] for name in ("PRECISION", "CPUS")]
    assert told.stdout.split() == fixed


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PRECISION", "half", "'half' is not one of auto, float32, bfloat16"),
        ("CPUS", "many", "must be a number from 1 to 4096, not 'many'"),
        ("CPUS", "0", "must be a number from 1 to 4096, not '0'"),
        ("CPUS", "-2", "must be a number from 1 to 4096, not '-2'"),
        ("CPUS", "5000", "must be a number from 1 to 4096, not '5000'"),
    ],
)
def test_a_wrong_variable_is_told_in_one_line(variable, value, said, monkeypatch, capsys, tmp_path):
    name = f"FASTWEIGHTS_{variable}"
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        atari.main(["--env", "Catch", "--savedir", str(tmp_path)])
    assert capsys.readouterr().err == f"error: {name} {said}\n"
    assert not list(tmp_path.iterdir())


def test_unknown_precision_lists_the_known():
    with pytest.raises(ValueError, match="--precision 'half'") as error:
        choose_precision("half", CPU)
    assert all(name in str(error.value) for name in PRECISIONS)


@pytest.mark.parametrize("able", [(True, True), (True, False), (False, True)])
def test_auto_is_float32_where_not_all_gain_by_bfloat16(as_the_machine_is, able, monkeypatch):
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(devices, "_prefers_bfloat16", dict(zip((gpu, CPU), able, strict=True)).get)
    assert choose_precision("auto", gpu, CPU) == ("bfloat16" if all(able) else "float32")


@pytest.mark.parametrize(("schedule", "same_bits"), [("lockstep", True), ("asynchronous", False)])
def test_a_run_computes_float32_in_float32(schedule, same_bits, monkeypatch):
    """On a GPU, TF32 is off; in lockstep cuDNN is deterministic."""
    for name in ("allow_tf32", "deterministic"):
        monkeypatch.setattr(torch.backends.cudnn, name, not same_bits)
    plan_for(RunOptions(env="Catch", schedule=schedule, num_threads=1))
    assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.deterministic == same_bits


def test_lockstep_has_one_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    options = RunOptions(device="cpu", schedule="lockstep", actor_device="cuda:0")
    with pytest.raises(ValueError, match="leave both out, or use --schedule asynchronous"):
        plan_of(options)


@pytest.mark.parametrize("name", PRECISIONS)
def test_actors_get_the_resolved_precision(name):
    plan = plan_of(RunOptions(device="cpu", precision=name))
    assert plan.options.precision == choose_precision(name, CPU)


@pytest.mark.parametrize(
    ("count", "processes", "threads"),
    [(3, 1, 3), (0, 1, processors()), (0, processors(), 1), (0, 2 * processors(), 1)],
)
def test_threads_are_those_asked_for_or_a_share_of_the_cores(count, processes, threads):
    use_threads(count, processes)
    assert torch.get_num_threads() == threads


def test_the_environment_says_how_many_cpus_there_are(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(9), raising=False)
    assert processors() == int(os.environ["FASTWEIGHTS_CPUS"])
    for told, found in (("3", 3), ("", 9)):
        monkeypatch.setenv("FASTWEIGHTS_CPUS", told)
        assert processors() == found


def test_float32_is_exact_whatever_was_set_before(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        compute_exactly()
        assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)
