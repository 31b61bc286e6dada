"""The comparison of settings: each run gets its own options, and ratios refer to the first."""

import json

import pytest

from benchmarks import settings
from benchmarks.settings import main

SMALL = ["--preset", "maze", "--env", "TMaze", "--core", "feedforward"]


def test_each_setting_is_run_and_compared_with_the_first(tmp_path, capsys):
    path = tmp_path / "result.json"
    given = ["--setting=", "--setting=--unroll-length 22", "--rounds", "1", "--seconds", "0.01"]
    main([*SMALL, *given, "--json", str(path)])
    preset, other = json.loads(path.read_text())["rows"]
    assert (preset["setting"], other["setting"]) == ("(the preset)", "--unroll-length 22")
    assert preset["ratio"] == 1
    assert other["ratio"] == other["samples"][0] / preset["samples"][0]
    assert other["agent_steps_per_second"] == other["samples"][0] > 0
    assert other["gigabytes"] > 0.05
    assert "--unroll-length 22" in capsys.readouterr().out


def test_the_options_are_split_as_in_a_shell(monkeypatch):
    asked = []

    def measured(*case, extra):
        asked.append(extra)
        return {"whole": 10.0 * len(asked), "gigabytes": 1.0}

    monkeypatch.setattr(settings, "measure_whole", measured)
    main([*SMALL, "--setting=", "--setting=--env-options 'a=b c'", "--rounds", "1"])
    assert asked == [[], ["--env-options", "a=b c"]]


@pytest.mark.parametrize("given", [[], ["--setting="], ["--setting=", "--setting="]])
def test_one_setting_is_nothing_to_compare(given, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*SMALL, *given])
    assert "give at least two different settings" in capsys.readouterr().err


def test_an_open_quote_is_told_before_any_run(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*SMALL, "--setting=", "--setting='--epochs 0"])
    assert capsys.readouterr().err == 'error: --setting="\'--epochs 0": No closing quotation\n'


def test_a_wrong_option_is_told_in_one_line(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*SMALL, "--setting=--epochs 0", "--setting=", "--rounds", "1", "--seconds", "0.01"])
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: a run failed: ")
