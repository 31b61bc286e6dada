"""The benchmark of sequence models on a tiny one: its rows, its ratios, bad input."""

import json
from dataclasses import replace

import pytest

from benchmarks.sequences import main, rows
from launch.sequence_options import PRESETS, small


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    def tiny(core, task):
        options = small(core, replace(task, statements=16))
        return replace(options, core_width=8, core_feedforward=8, core_layers=1)

    monkeypatch.setitem(PRESETS, "small", tiny)
    monkeypatch.setattr("benchmarks.sequences.tune_allocator", lambda: None)  # of the whole process


def test_every_model_has_a_row_and_memories_one_more_time(tmp_path, capsys):
    path = tmp_path / "sequences.json"
    main(["--cores", "delta_net", "transformer", "--rounds", "2", "--json", str(path)])
    memory, transformer = json.loads(path.read_text())["rows"]
    assert {name: len(times) for name, times in memory["seconds"].items()} == {
        "auto": 2,
        "reference": 2,
    }
    assert list(transformer["seconds"]) == ["auto"] and transformer["times_transformer"] == 1
    assert memory["parameters"] > 0 and memory["times_reference"] > 0
    assert "times reference" in capsys.readouterr().out.replace("\n", " ")


def test_ratios_are_of_the_same_round():
    """Of medians they would be 10 and 2."""
    samples = {
        ("rdn", "auto"): [0.1, 0.2, 0.4],
        ("rdn", "reference"): [2.0, 8.0, 1.0],
        ("transformer", "auto"): [0.3, 0.4, 1.6],
    }
    models = [{"core": core, "parameters": 1} for core in ("rdn", "transformer")]
    rdn, transformer = rows(models, samples, tokens=100)
    assert rdn["tokens_per_second"] == 500
    assert (rdn["times_reference"], rdn["times_transformer"]) == pytest.approx((20, 3))
    assert rdn["published_times_transformer"] == 1.06
    assert transformer["times_reference"] is None
