"""Suites: their declarations, a tiny suite that is stopped and resumed, and refusals."""

import csv
import io
import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from fastweights.cores import CORES
from fastweights.experiments.agents.ablation import ARMS
from fastweights.experiments.agents.suites import SUITES, Axis, Start, Suite
from fastweights.launch import suite as command
from fastweights.launch.cli.atari_options import parse
from fastweights.records.log_table import read_logs
from fastweights.records.run_folder import RunFolder
from fastweights.training.options import RunOptions
from fastweights.training.presets import preset

pytestmark = pytest.mark.usefixtures("forked_runs")

STEPS = 15 * 48 * 44  # fifteen updates


def start(game: str, core: str) -> Start:
    return Start("maze", replace(preset("maze", core), env=game, env_options=("corridor=3",)))


@pytest.fixture
def tiny(monkeypatch):
    """Register a suite of short mazes."""
    axes = {"game": Axis(("TMaze",)), "core": Axis(("lstm", "rdn"), CORES)}
    suite = Suite(question="A short maze?", axes=axes, start=start, digits=2, note="A note.")
    monkeypatch.setitem(SUITES, "tiny", suite)
    return suite


def asked(folder, *more) -> list[str]:
    return ["tiny", "--runs", str(folder), "--total-steps", str(STEPS), *more]


def test_a_suite_that_is_stopped_goes_on_and_its_table_has_intervals(tiny, tmp_path, capsys):
    first, second = (tmp_path / f"TMaze-lstm-seed{seed}" for seed in (1, 2))
    words = asked(tmp_path, "--cores", "lstm", "--seeds", "1", "2", "--jobs", "1")

    def interrupt_soon() -> None:
        while not ((first / "logs.csv").exists() and read_logs(first)["step"]):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_soon, daemon=True).start()
    assert command.main(words) == 128 + signal.SIGINT
    assert "the same command resumes them" in capsys.readouterr().out
    assert not json.loads((first / "meta.json").read_text())["successful"]
    assert not second.exists() and not (tmp_path / "table.md").exists()

    assert command.main(words) == 0
    assert len(json.loads((first / "meta.json").read_text())["resumed"]) == 1
    (row,) = json.loads((tmp_path / "table.json").read_text())
    logs = [read_logs(run) for run in (first, second)]
    returns = [log["recent_full_game_return"][-1] for log in logs]
    assert row["return"] == returns and row["low"] == min(returns) < row["high"] == max(returns)
    assert row["agent_steps"] == STEPS
    minutes = [sum(log["cpu_seconds"]) / 60 for log in logs]
    assert row["cpu_minutes"] == pytest.approx(sum(minutes) / 2, abs=0.1 / 60)
    (line,) = csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text()))
    assert float(line["high"]) == max(returns) and float(line["agent_steps"]) == STEPS
    text = (tmp_path / "table.md").read_text()
    assert f"| {min(returns):.2f} to {max(returns):.2f} |" in text
    assert f"| {STEPS:,} |" in text and "\nA note.\n" in text
    copied = list(csv.DictReader(io.StringIO((tmp_path / "logs.csv").read_text())))
    last = [one for one in copied if one["seed"] == "1"][-1]
    assert len(copied) == 30 and float(last["step"]) == STEPS
    assert float(last["cpu_seconds"]) == pytest.approx(60 * minutes[0], rel=1e-5)
    for picture in ("table", "learning_curves"):
        assert (tmp_path / f"{picture}.png").read_bytes().startswith(b"\x89PNG")


def stored(tiny, folder, core, seed, rows) -> None:
    """Store a finished run whose log has these rows."""
    run = tiny.run(folder, STEPS, seed, game="TMaze", core=core)
    kept = RunFolder.create(folder, run.name, run.options.to_dict())
    for row in rows:
        kept.log(row)
    kept.finish()


def test_a_run_without_a_finished_game_or_a_clock_leaves_a_gap(tiny, tmp_path, capsys):
    stored(tiny, tmp_path, "lstm", 1, [{"step": 100, "games": 0, "cpu_seconds": 60.0}])
    games = {"games": 100, "recent_full_game_return": 0.5}
    stored(tiny, tmp_path, "rdn", 1, [{"step": 100, **games}, {"step": 200, **games}])
    out = tmp_path / "out"
    assert command.main(asked(tmp_path, "--seeds", "1", "--out", str(out))) == 0
    lines = (out / "table.md").read_text().splitlines()
    assert "| TMaze | `lstm` |  |  |  | 100 | 1.0 |" in lines
    assert "| TMaze | `rdn` | 0.50 |  | 0.50 | 200 |  |" in lines
    assert [one["core"] for one in json.loads((out / "results.json").read_text())] == [
        *("lstm", "rdn")
    ]


def test_a_long_log_is_copied_short(tiny, tmp_path):
    rows = [{"step": 10 * n, "games": n, "cpu_seconds": 0.5} for n in range(1, 1001)]
    stored(tiny, tmp_path, "rdn", 1, rows)
    assert command.main(asked(tmp_path, "--cores", "rdn", "--seeds", "1")) == 0
    copied = list(csv.DictReader(io.StringIO((tmp_path / "logs.csv").read_text())))
    assert len(copied) == 200
    ends = [(one["step"], one["cpu_seconds"], one["games"]) for one in (copied[0], copied[-1])]
    assert ends == [("10", "0.5", "1"), ("10000", "500", "1000")]


def one_of_each(name: str):
    """Yield a run for each value of an axis, with the first values of the other axes."""
    suite = SUITES[name]
    first = {axis: values.default[0] for axis, values in suite.axes.items()}
    labels = {
        tuple((first | {axis: v}).items()) for axis in first for v in suite.axes[axis].default
    }
    return [dict(one) for one in sorted(labels)]


@pytest.mark.parametrize("name", ["atari", "ablation", "flicker", "popgym"])
def test_a_declared_run_is_a_command_that_gives_its_options(name, tmp_path):
    if name == "popgym":
        pytest.importorskip("popgym")
    for labels in one_of_each(name):
        run = SUITES[name].run(tmp_path, None, 3, **labels)
        wanted = replace(run.options, num_threads=1)
        assert parse(run.start()[2:]).run == wanted, labels
        assert (wanted.seed, wanted.evaluate_episodes) == (3, 0)


def test_a_run_of_a_package_s_game_names_it_again_to_go_on(tmp_path):
    """The command that resumes a run must name the module that is imported for its game."""
    pytest.importorskip("popgym")
    run = SUITES["popgym"].run(tmp_path, None, 1, game="RepeatFirstEasy", core="lstm")
    RunFolder.create(tmp_path, run.name, run.options.to_dict()).finish(successful=False)
    command = run.command()
    assert "--auto-resume" in command and command[command.index("--env") + 1] == run.options.env
    assert run.options.env == "popgym:popgym-RepeatFirstEasy-v0"


def changed(options: RunOptions, others: RunOptions) -> set[str]:
    one, two = options.to_dict(), others.to_dict()
    return {name for name in one if one[name] != two[name]}


def test_an_arm_changes_what_it_names():
    quick = ARMS["quick"].options("rdn")
    assert changed(quick, preset("quick", "rdn")) <= {"total_steps"} and len(ARMS) <= 8
    for name, arm in ARMS.items():
        options, named = arm.options("rdn"), {*arm.learner, *arm.others}
        assert options.learner.total_steps == 500_000
        if name == "paper":
            paper = changed(options, preset("paper", "rdn"))
            assert paper == {"stem", "total_steps"} and options.stem == quick.stem
        elif name != "quick":
            assert set() < changed(options, quick) <= named, name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "ablatoin",
            "unknown suite 'ablatoin'; known: atari, ablation, flicker, popgym; did you mean",
        ),
        ("", "the following arguments are required: NAME"),
        ("ablation --arms ap-po", "unknown arm 'ap-po'; known: quick, appo, "),
        ("ablation --arms appo appo", "--arms has the same value twice"),
        ("ablation --seeds 1 x", "--seeds: must be a whole number"),
        ("ablation --seeds 1 1", "--seeds has the same value twice"),
        ("ablation --games Qebrt", "unknown environment 'Qebrt': did you mean Qbert?"),
        ("ablation --cores rnd", "unknown core 'rnd'"),
        ("ablation --total-steps 10", "--total-steps 10 is less than one update"),
        ("ablation --views single", "unrecognized arguments: --views single"),
        ("flicker --views blind", "unknown view 'blind'; known: single, flicker"),
        ("flicker --jobs -1", "--jobs must be at least 0, not -1"),
    ],
)
def test_what_a_suite_refuses_is_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        command.main(words.split())
    line = capsys.readouterr().err
    assert stopped.value.code == 2
    assert line.startswith("error: ") and said in line and line.count("\n") == 1
    assert not list(tmp_path.iterdir())
