"""The training benchmark: its parts, bound and ratios, on a game without pictures."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import training
from benchmarks.training import (
    PARTS,
    bound,
    main,
    measure,
    measure_parts,
    measure_parts_elsewhere,
    measure_whole,
    show,
)
from fastweights.agents.learner_config import LearnerConfig
from fastweights.records.log_table import LogTable
from fastweights.training.presets import preset


@pytest.mark.parametrize(("schedule", "groups"), [("lockstep", 1), ("asynchronous", 2)])
def test_rates_count_the_streams_that_are_stepped(schedule, groups, monkeypatch):
    counted = {}

    def rate(call, steps, seconds):
        call()
        counted[len(counted)] = steps
        return float(steps)

    monkeypatch.setattr("benchmarks.training._rate", rate)
    sizes = {
        "num_envs": 4,
        "batch_size": 4,
        "unroll_length": 3,
        "num_threads": 1,
        "tune_memory": False,
        "learner": LearnerConfig(),
    }
    options = replace(preset("maze", "feedforward"), **sizes, schedule=schedule, env_groups=groups)
    streams = 4 // groups
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", schedule != "lockstep")
    assert measure_parts(options, seconds=0.0)["update"] == 3 * streams
    assert list(counted.values()) == [streams, streams, 3 * streams]
    assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.deterministic == (schedule == "lockstep")


def test_every_part_has_a_rate():
    sizes = {
        "num_envs": 2,
        "batch_size": 2,
        "unroll_length": 3,
        "num_threads": 1,
        "tune_memory": False,
        "learner": LearnerConfig(),
    }
    options = replace(preset("maze", "feedforward"), **sizes)
    parts = measure_parts(options, seconds=0.01)
    assert set(parts) == {*PARTS, "bound"} and min(parts.values()) > 0
    assert parts["bound"] < min(parts[part] for part in PARTS)


def test_the_bound_is_that_of_the_schedule():
    parts = {"environments": 6.0, "inference": 3.0, "update": 2.0}
    assert bound(parts, "lockstep") == pytest.approx(1.0)
    assert bound(parts, "asynchronous") == 2.0


def test_parts_are_measured_on_the_threads_and_device_asked_for(monkeypatch, capsys):
    asked = []

    def said(command: list[str]) -> str:
        main(command[2:])
        return capsys.readouterr().out

    monkeypatch.setattr(training, "said", said)
    monkeypatch.setattr(training, "measure_parts", lambda *given: asked.append(given) or {})
    measure_parts_elsewhere("plain", "lstm", "Catch", 2.0, threads=3, device="cuda:1")
    measure_parts_elsewhere("paper", "rdn", "Catch", 1.0)
    options = replace(preset("plain", "lstm"), env="Catch", num_threads=3, device="cuda:1")
    assert asked == [(options, 2.0), (replace(preset("paper", "rdn"), env="Catch"), 1.0)]


def test_the_whole_is_all_steps_over_all_time(monkeypatch):
    """The log has two updates at once, every ten seconds."""

    def run(command: list[str]) -> float:
        where = dict(zip(command[2::2], command[3::2], strict=False))
        folder = Path(where["--savedir"]) / where["--xpid"]
        folder.mkdir()
        log = LogTable(folder)
        for update in range(1, 9):
            seconds = 10 * ((update + 1) // 2)
            log.log({"step": 100 * update, "agent_steps_per_second": 1e6}, now=1e9 + seconds)
        return 1.5

    monkeypatch.setattr(training, "_run", run)
    assert measure_whole("paper", "lstm", "Catch", 1.0, 1.0) == {"whole": 20.0, "gigabytes": 1.5}


def test_ratios_are_of_the_same_round(monkeypatch, capsys):
    """Some runs are slower in round two; by medians, rdn would have half of lstm's rate."""
    wholes = {
        ("paper", "lstm"): iter([100.0, 10.0, 400.0]),
        ("paper", "rdn"): iter([50.0, 20.0, 600.0]),
        ("plain", "rdn"): iter([10.0, 5.0, 200.0]),
    }
    parts = dict.fromkeys((*PARTS, "bound"), 100.0)

    def whole(name: str, core: str, *how: object) -> dict[str, float]:
        return {"whole": next(wholes[name, core]), "gigabytes": 1.0}

    monkeypatch.setattr(training, "measure_parts_elsewhere", lambda *what: parts)
    monkeypatch.setattr(training, "measure_whole", whole)
    rows = measure([*wholes], "Catch", 3, 1.0)
    assert [(row["preset"], row["core"], row["whole"]) for row in rows] == [
        ("paper", "lstm", 100.0),
        ("paper", "rdn", 50.0),
        ("plain", "rdn", 10.0),
    ]
    show(rows, {})
    said = capsys.readouterr().out
    assert "+50.0%" in said and "rdn: 4.0 times as fast as" in said


def test_a_file_without_a_folder_is_refused_before_anything_is_measured(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--json", "nowhere/training.json"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("error: nowhere/training.json: no folder")
