"""The scaling estimate: limits computed by hand, monotony in every resource, the command."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scaling import main
from benchmarks.scaling_model import ASSUMPTIONS, Layout, Parts, estimate, limits

PARTS = Parts(
    environments=1000.0,
    cpu_inference=500.0,
    cpu_update=250.0,
    gpu_inference=40_000.0,
    gpu_update=10_000.0,
    step_bytes=30_000.0,
    weight_bytes=4e6,
    call_seconds=1e-3,
    network=3e9,
    batch=32,
    unroll=50,
)
CPU = Layout(environments=48, cores=2)
GPU = Layout(environments=1024, cores=16, gpus=1)
SPREAD = Layout(environments=4096, machines=4, cores=16, gpus=1, learners=2, learner_gpus=4)
RATES = ("--environments-rate", "1000", "--inference-rate", "500", "--update-rate", "250")
RATES_MEASURED = ("environments", "inference", "update")
TWO_CORES = ("--layout", "environments=48,cores=2")


def test_a_processor_takes_turns():
    """A step takes 1/2000 + 1/1000 + 1/500 seconds."""
    found = estimate(PARTS, CPU)
    assert found.rate == pytest.approx(2000 / 7)
    assert found.saturated == "learner"
    assert found.cores_needed is None
    assert found.updates_a_rollout == pytest.approx(48 / 32)


def test_too_few_environments_wait_for_their_turns():
    """Four environments: each step takes 1 ms of emulation and 1 ms of waiting."""
    found = estimate(PARTS, replace(GPU, environments=4))
    assert (found.rate, found.saturated) == (pytest.approx(2000), "turns")


def test_a_gpu_that_acts_and_learns_takes_turns_too():
    """1/40,000 + 1/10,000 s a step is 8,000 steps/s; eight cores emulate as many."""
    found = estimate(PARTS, GPU)
    assert (found.rate, found.saturated) == (pytest.approx(8000), "learner")
    assert found.cores_needed == 8
    fewer = estimate(PARTS, replace(GPU, cores=7))
    assert (fewer.rate, fewer.saturated) == (pytest.approx(7000), "environments")


def test_learners_of_their_own_have_every_limit():
    """Eight GPUs learn from 8 x 32 x 50 = 12,800 steps in 0.16 s, and sum in 4 MB / 3 GB/s."""
    found = limits(PARTS, SPREAD)
    assert found == pytest.approx(
        {
            "turns": 4096 / 2e-3,
            "environments": 64_000,
            "inference": 160_000,
            "learner": 12_800 / (0.16 + 4e6 / 3e9),
            "network": 2 * 3e9 / 30_000,
            "broadcast": 2 * 3e9 * 12_800 / (4 * 4e6),
        }
    )
    assert estimate(PARTS, SPREAD).saturated == "environments"


@pytest.mark.parametrize(
    ("changed", "saturated"),
    [
        ({"network": 3e7}, "network"),
        ({"network": 3e7, "step_bytes": 1.0, "weight_bytes": 4e9}, "broadcast"),
        ({"gpu_inference": 10.0}, "inference"),
        ({"gpu_update": 10.0}, "learner"),
        ({"call_seconds": 10.0}, "turns"),
        ({"environments": 1.0}, "environments"),
    ],
)
def test_what_is_scarce_saturates(changed: dict, saturated: str):
    assert estimate(replace(PARTS, **changed), SPREAD).saturated == saturated


def test_publishing_half_as_often_halves_the_broadcast():
    twice = limits(replace(PARTS, publish_every=2), SPREAD)["broadcast"]
    assert twice == pytest.approx(2 * limits(PARTS, SPREAD)["broadcast"])


@pytest.mark.parametrize("layout", [CPU, GPU, SPREAD], ids=["cpu", "gpu", "spread"])
@pytest.mark.parametrize("more", ["environments", "cores", "gpus", "learner_gpus"])
def test_more_devices_are_never_slower(layout: Layout, more: str):
    amount = getattr(layout, more)
    rates = [estimate(PARTS, replace(layout, **{more: amount * n})).rate for n in (1, 2, 4, 100)]
    assert rates == sorted(rates)


@pytest.mark.parametrize("layout", [CPU, GPU, SPREAD], ids=["cpu", "gpu", "spread"])
@pytest.mark.parametrize(
    "faster",
    ["environments", "cpu_inference", "cpu_update", "gpu_inference", "gpu_update", "network"],
)
def test_faster_parts_are_never_slower(layout: Layout, faster: str):
    speed = getattr(PARTS, faster)
    rates = [estimate(replace(PARTS, **{faster: speed * n}), layout).rate for n in (0.1, 1, 3)]
    assert rates == sorted(rates)


def test_the_command_writes_what_it_prints(tmp_path: Path, capsys):
    measured = {"preset": "paper", "core": "lstm", "environments": 4000.0, "inference": 2000.0}
    rows = [measured | {"update": 1000.0}, measured | {"preset": "plain", "update": 1.0}]
    content = {"machine": {"cores": 2}, "rows": rows}
    (tmp_path / "training.json").write_text(json.dumps(content))
    layout = ("--layout", "environments=48,cores=4")
    files = ("--json", tmp_path / "scaling.json", "--plot", tmp_path / "scaling.png")
    words = ("--parts", tmp_path / "training.json", "--core", "lstm", *layout, *files)
    main([*map(str, words)])
    said = capsys.readouterr().out
    assert "Estimate" in said
    assert all(line in said for line in ASSUMPTIONS)
    written = json.loads((tmp_path / "scaling.json").read_text())
    assert written["what"].startswith("Estimate")
    assert written["rows"][0]["rate"] == pytest.approx(8000 / 7)
    assert written["rows"][0]["limits"]["network"] is None
    assert written["parts"]["weight_bytes"] > 1e6
    assert written["parts"]["step_bytes"] == pytest.approx(
        84 * 84 * 54 / 50 + 13 * 1.02 + 32 + 2 * 256 * 4 / 50
    )
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("row", "cores"),
    [
        ({"environments": None}, 2),
        ({"environments": "3"}, 2),
        ({"environments": [3]}, 2),
        ({"environments": 10**400}, 2),
        ({}, 0),
        ({}, "2"),
    ],
)
def test_a_file_with_odd_rates_is_one_line(row, cores, tmp_path, capsys):
    whole = {"preset": "paper", "core": "rdn", **dict.fromkeys(RATES_MEASURED, 1.0)} | row
    rows = [{name: value for name, value in whole.items() if value is not None}]
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({"machine": {"cores": cores}, "rows": rows}))
    with pytest.raises(SystemExit, match="2"):
        main(["--parts", str(path)])
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path} is not a file of `benchmarks/training.py --json`")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ((), "the speed of environments, cpu_inference, cpu_update is not known"),
        (("--parts", "none.json"), "none.json is not a file of `benchmarks/training.py"),
        (("--parts", "empty.json"), "empty.json is not a file of `benchmarks/training.py"),
        ((*RATES, "--layout", "environments=48,gpus=1,cores=2"), "needs their speed: add --gpu-"),
        ((*RATES, "--layout", "environments=48"), "--layout environments=48: cores missing"),
        ((*RATES, "--layout", "environments=48,cores=2,gpu=1"), "gpu unknown"),
        ((*RATES, "--layout", "environments=48,cores=zero"), "'zero'; give pairs name=number"),
        ((*RATES, "--layout", "environments=48,cores=0"), "cores must be at least 1, not 0"),
        ((*RATES, "--layout", "environments=48,cores=2,learners=1"), "give both learners"),
        ((*RATES, *TWO_CORES, "--gbits", "0"), "--gbits must be above 0 and finite, not 0"),
        ((*RATES, *TWO_CORES, "--unroll-length", "0"), "--unroll-length must be above 0"),
        ((*RATES, *TWO_CORES, "--call-seconds", "-1"), "--call-seconds must be at least 0"),
        ((*RATES, *TWO_CORES, "--json", "nowhere/scaling.json"), "no folder nowhere"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_bad_input_is_one_line(bad, says, tmp_path, monkeypatch, capsys):
    (tmp_path / "empty.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(bad)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and says in said
    assert said.count("\n") == 1
