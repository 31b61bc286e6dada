"""The comparison of two checkouts: each runs its own code, and they alternate."""

import json
from pathlib import Path

import pytest

from benchmarks import checkouts
from benchmarks.checkouts import main

ROOT = Path(__file__).parents[2]


def test_each_checkout_runs_its_own_code(tmp_path, monkeypatch, capsys):
    """The other checkout is a stub that logs 10 steps a second and answers slowly."""
    other = tmp_path / "before" / "launch"
    other.mkdir(parents=True)
    (other / "atari.py").write_text(
        "import pathlib, sys, time\n"
        "if '--savedir' not in sys.argv:\n"
        "    time.sleep(0.5)\n"
        "    sys.exit()\n"
        "run = pathlib.Path(sys.argv[sys.argv.index('--savedir') + 1], 'run')\n"
        "run.mkdir()\n"
        "rows = (f'{tick},{tick}.0,{10 * tick}' for tick in range(1, 9))\n"
        "(run / 'logs.csv').write_text('\\n'.join(['# _tick,_time,step', *rows, '']))\n"
        "(run / 'hashes.csv').write_text('update,step,rollout,weights\\n1,9,a,b\\n')\n"
    )
    monkeypatch.setattr(checkouts, "STARTS", ("--help",))
    path = tmp_path / "result.json"
    small = ["--rounds", "1", "--seconds", "0.01", "--core", "feedforward", "--env", "TMaze"]
    main(["--before", str(other.parent), "--presets", "maze", *small, "--json", str(path)])
    run, help_time = json.loads(path.read_text())["rows"]
    assert run["before"] == pytest.approx(10.0) and run["after"] > 20
    assert run["ratio"] == pytest.approx(run["after"] / run["before"])
    assert help_time["before"] > 0.5 and help_time["after"] > 0.2
    assert "maze, agent steps/s" in capsys.readouterr().out
    main(["--before", str(other.parent), "--presets", "maze", *small, "--updates", "1"])
    assert "maze: first updates (1) NOT identical" in capsys.readouterr().out


def test_a_checkout_makes_its_own_first_updates_again(tmp_path, capsys):
    path = tmp_path / "result.json"
    small = ["--presets", "maze", "--core", "feedforward", "--env", "TMaze", "--updates", "2"]
    main(["--before", str(ROOT), *small, "--json", str(path)])
    assert "maze: first updates (2) identical" in capsys.readouterr().out
    (row,) = json.loads(path.read_text())["rows"]
    assert row["before"] == row["after"] and len({one["weights"] for one in row["after"]}) == 2


def test_more_updates_than_a_run_records_are_one_line(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--before", str(ROOT), "--updates", "11"])
    assert "--updates must lie in [0, 10], not 11" in capsys.readouterr().err


def test_another_checkout_without_the_command_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--before", str(tmp_path)])
    assert ended.value.code == 2
    assert "the folder has no launch/atari.py" in capsys.readouterr().err
