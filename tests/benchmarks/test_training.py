"""The parts of training that the benchmark times, on a game without pictures."""

from dataclasses import replace

import pytest

from benchmarks.training import PARTS, bound, main, measure_parts
from launch.options import preset


@pytest.mark.parametrize(("schedule", "groups"), [("lockstep", 1), ("asynchronous", 2)])
def test_rates_count_the_streams_that_are_stepped(schedule, groups, monkeypatch):
    counted = {}

    def rate(call, steps, seconds):
        call()
        counted[len(counted)] = steps
        return float(steps)

    monkeypatch.setattr("benchmarks.training._rate", rate)
    sizes = {"num_envs": 4, "unroll_length": 3, "num_threads": 1, "tune_memory": False}
    options = replace(preset("maze", "feedforward"), **sizes, schedule=schedule, env_groups=groups)
    streams = 4 // groups
    assert measure_parts(options, seconds=0.0)["update"] == 3 * streams
    assert list(counted.values()) == [streams, streams, 3 * streams]


def test_every_part_has_a_rate():
    sizes = {"num_envs": 2, "unroll_length": 3, "num_threads": 1, "tune_memory": False}
    options = replace(preset("maze", "feedforward"), **sizes)
    parts = measure_parts(options, seconds=0.01)
    assert set(parts) == {*PARTS, "bound"} and min(parts.values()) > 0
    assert parts["bound"] < min(parts[part] for part in PARTS)


def test_the_bound_is_that_of_the_schedule():
    parts = {"environments": 6.0, "inference": 3.0, "update": 2.0}
    assert bound(parts, "lockstep") == pytest.approx(1.0)
    assert bound(parts, "asynchronous") == 2.0


def test_a_file_without_a_folder_is_refused_before_anything_is_measured(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--json", "nowhere/training.json"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("error: nowhere/training.json: there is no folder")
