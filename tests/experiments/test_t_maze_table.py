"""The table of the T-maze: missing runs are trained, finished ones kept, failed ones gaps."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fastweights.experiments.agents import t_maze_table
from fastweights.experiments.pictures import NOTHING
from fastweights.experiments.rows import Row
from fastweights.host.commands import command_argv
from fastweights.launch import atari, t_maze
from tests.evaluation.drawings import words_in
from tests.evaluation.report_pages import evaluation

STEPS = 2112
STORED = Path(__file__).parents[2] / "docs" / "results" / "t_maze"


def finished(runs, core, seed, *options):
    where = ("--savedir", runs, "--xpid", f"{core}-{seed}", "--seed", seed)
    length = ("--num-threads", "1", "--total-steps", STEPS)
    words = ("--preset", "maze", "--core", core, *length, *where, *options)
    assert atari.main([*map(str, words)]) == 0


def begun(runs, core, seed, successful=False):
    """Make a folder of a run of the table without a checkpoint."""
    run = t_maze_table.t_maze_run(core, seed, runs, STEPS)
    run.path.mkdir(parents=True, exist_ok=True)
    meta = {"successful": successful, "args": run.options.to_dict()}
    (run.path / "meta.json").write_text(json.dumps(meta))
    return run


def test_a_table_of_runs_that_are_there(tmp_path, capsys, drawn):
    finished(tmp_path, "lstm", 1)
    capsys.readouterr()
    damaged = begun(tmp_path, "rdn", 1).path / "checkpoints" / "step_000000000001.pt"
    damaged.parent.mkdir()
    damaged.write_bytes(b"")
    asked = ["--cores", "lstm", "rdn", "--seeds", "1", "--runs", str(tmp_path)]
    asked += ["--total-steps", str(STEPS)]
    assert t_maze.main([*asked, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert "failed: rdn-1: " in said.err and said.err.count("\n") == 1
    (result,) = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (result["core"], result["seed"], len(result["returns"])) == ("lstm", 1, 200)
    won = 100 * sum(one > 0 for one in result["returns"]) / 200
    assert f"| `lstm` | {won:.1f} % | {won:.1f} % |" in said.out
    assert (tmp_path / "out" / "table.md").read_text() in said.out
    for picture in ("learning_curves.png", "table.png"):
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")
    table, curves = words_in(drawn["table.png"]), words_in(drawn["learning_curves.png"])
    assert {"lstm", "rdn", "failed", "one seed"} <= set(table)
    assert "test games won, percent (chance is 50)" in table
    assert NOTHING in curves and "agent steps" not in curves  # one update had games enough


def test_a_gap_is_left_where_a_seed_is_missing():
    def row(core, values):
        return Row(labels={"core": core}, seeds=[1, 2], values=values)

    rows = [row("lstm", {1: 50.0, 2: 50.0}), row("rdn", {2: 50.0})]
    lines = t_maze_table.table([1, 2]).markdown(rows).splitlines()
    assert lines[2:] == [
        "| `lstm` | 50.0 % | 50.0 % | 50.0 ± 0.0 % |",
        "| `rdn` |  | 50.0 % | 50.0 % |",
    ]


def test_the_stored_table_is_what_its_runs_come_to():
    won = {}
    for result in json.loads((STORED / "results.json").read_text()):
        won.setdefault(result["core"], {})[result["seed"]] = t_maze_table.won_share(result)
    rows = [
        Row(labels={"core": core}, seeds=[1, 2, 3], values=values) for core, values in won.items()
    ]
    _title, _blank, *stored = (STORED / "table.md").read_text().splitlines()
    assert t_maze_table.table([1, 2, 3]).markdown(rows).splitlines() == stored
    (page,) = re.findall(r"^\| core .*?\n\n", (STORED / "README.md").read_text(), re.DOTALL | re.M)
    assert page.splitlines()[:-1] == stored


def test_a_run_begins_or_goes_on(tmp_path):
    run = t_maze_table.t_maze_run("rdn", 3, tmp_path, STEPS)
    start = run.command()
    assert run.name == "rdn-3" and start[:2] == command_argv("atari")
    assert " ".join(start[2:]) == (
        "--num-threads 1 --preset maze --core rdn --seed 3 --total-steps 2112 "
        f"--savedir {tmp_path} --xpid rdn-3"
    )
    begun(tmp_path, "rdn", 3)
    assert run.command() == [*start, "--auto-resume"]
    begun(tmp_path, "rdn", 3, successful=True)
    evaluate = (*command_argv("evaluate"), str(tmp_path / "rdn-3"), "--num-threads", "1")
    assert run.command() == [
        *(*evaluate, "--episodes", "200", "--repeats", "1"),
        *("--protocol", "trained", "--action-mode", "sampled"),
    ]


def test_a_run_is_finished_once_its_own_games_are_stored_and_sound(tmp_path):
    run = begun(tmp_path, "rdn", 3, successful=True)
    own = evaluation(
        *("rdn", [1.0] * 200),
        env="TMaze",
        max_frames=108_000,
        action_mode="sampled",
        seed=1_000_000,
        agent_steps=STEPS,
    )
    others = {"agent_steps": 1056}, {"protocol": "machado"}, {"seed": 7}, {"max_frames": None}
    few = replace(own, episodes=own.episodes[:5])
    for other in (few, *(replace(own, **changed) for changed in others)):
        other.save(run.path / "evaluations" / other.file_name())
    assert not run.finished, "games in training, and under other rules, are not the run's own"
    path = run.path / "evaluations" / own.file_name()
    own.save(path)
    assert run.finished and run.command() is None
    path.write_text("{}")
    assert run.command()[1].endswith("evaluate.py"), "a damaged file's games are played again"


@pytest.mark.parametrize(
    ("flag", "value", "own"),
    [("--core-input-map", "softmax", "identity"), ("--discounting", "0.9", "0.99")],
)
def test_a_run_with_other_options_is_not_used(flag, value, own, tmp_path, capsys):
    finished(tmp_path, "srwm", 1, flag, value)
    capsys.readouterr()
    asked = ["--cores", "srwm", "--seeds", "1", "--runs", str(tmp_path)]
    with pytest.raises(SystemExit) as stopped:
        t_maze.main([*asked, "--total-steps", str(STEPS)])
    assert stopped.value.code == 2
    line = capsys.readouterr().err
    assert f"differs from the table's, which has {flag} {own} (was {value}): move it" in line
    assert line.count("\n") == 1


@pytest.mark.parametrize("twice", [["--cores", "rdn", "rdn"], ["--seeds", "1", "1"]])
def test_nothing_is_asked_for_twice(twice, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        t_maze.main([*twice, "--runs", str(tmp_path)])
    assert stopped.value.code == 2
    assert (
        capsys.readouterr().err
        == f"error: {twice[0]} has the same value twice: give each value once\n"
    )
