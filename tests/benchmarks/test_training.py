"""The parts of training that the benchmark times, on a game without pictures."""

from dataclasses import replace

import pytest

from benchmarks.training import PARTS, bound, main, measure_parts
from launch.options import preset


def test_every_part_has_a_rate():
    sizes = {"num_envs": 2, "unroll_length": 3, "num_threads": 1, "tune_memory": False}
    options = replace(preset("maze", "feedforward"), **sizes)
    parts = measure_parts(options, seconds=0.01)
    assert set(parts) == set(PARTS) and min(parts.values()) > 0
    assert 0 < bound(parts) < min(parts.values())


def test_a_file_without_a_folder_is_refused_before_anything_is_measured(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--json", "nowhere/training.json"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("error: nowhere/training.json: there is no folder")
