"""The benchmark of the image stem: its rows and ratios, on small batches."""

import json

import pytest

from benchmarks import convolutions


def test_every_layer_is_timed_both_ways(tmp_path, monkeypatch, capsys):
    # It would change the whole process.
    monkeypatch.setattr(convolutions, "tune_allocator", lambda: None)
    monkeypatch.setattr(convolutions, "FRAMES", {"acting": 1, "learning": 2})
    path = tmp_path / "convolutions.json"
    convolutions.main(["--rounds", "2", "--seconds", "5", "--json", str(path)])
    found = json.loads(path.read_text())["rows"]
    assert len(found) == 2 * len(convolutions.layers())
    assert {row["frames"] for row in found} == {1, 2}
    assert all({"ours", "pytorch"} <= set(row["seconds"]) for row in found)
    assert convolutions.WHOLE in capsys.readouterr().out


def test_ratios_are_of_the_same_round():
    seconds = {"ours": [0.1, 0.2, 9.0], "pytorch": [0.5, 0.8, 0.6]}
    (row,) = convolutions.rows({("unit", "acting", by): s for by, s in seconds.items()})
    assert row["milliseconds"] == {"ours": 200, "pytorch": 600}
    assert row["slower"]["pytorch"] == pytest.approx(4)
