"""The benchmark of distributed runs: it checks its needs first and keeps what it measured."""

import json
from importlib.machinery import ModuleSpec

import pytest

from benchmarks import distributed, remote_actors

WIRE = dict.fromkeys(("encode", "decode", "pack", "unpack", "bytes_per_step"), 1.0)
WIRE |= dict.fromkeys(("packed_bytes_per_step", "least_bytes_per_step"), 1.0)
WIRE |= {"zlib_pays_below_bytes_per_second": 1.0, "game": "Qbert", "core": "rdn"}


@pytest.fixture
def wire(monkeypatch) -> list[tuple]:
    """Replace the part `wire` by a quick one and return its arguments; Ray's parts fail."""
    asked = []

    def broken(*what):
        raise RuntimeError("an actor was lost")

    monkeypatch.setattr(remote_actors, "wire", lambda *what, rollouts: asked.append(what) or WIRE)
    monkeypatch.setattr(remote_actors, "rates", broken)
    monkeypatch.setattr(remote_actors, "recovery", broken)
    return asked


@pytest.mark.parametrize("part", ["ray", "recovery"])
def test_without_ray_no_part_is_measured_first(part, wire, monkeypatch, capsys):
    monkeypatch.setattr(remote_actors, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        distributed.main(["--parts", "wire", part])
    assert "pip install -e '.[ray]'" in capsys.readouterr().err and not wire
    distributed.main(["--parts", "wire"])
    assert wire == [("Qbert", "rdn")]


def test_what_was_measured_is_written_before_the_next_part(wire, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_actors, "find_spec", lambda name: ModuleSpec(name, None))
    path = tmp_path / "distributed.json"
    with pytest.raises(RuntimeError, match="lost"):
        distributed.main(["--parts", "wire", "ray", "--json", str(path)])
    assert json.loads(path.read_text())["wire"] == WIRE


def test_a_game_without_pictures_is_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        distributed.main(["--parts", "wire", "--env", "Catch"])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1
    assert said.startswith("error: stem 'shallow_centred' needs images")
