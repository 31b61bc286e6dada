"""A grid declared as in docs/experiments.md runs, and its files agree with each other."""

import csv
import io
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastweights.agents.learner_config import LearnerConfig
from fastweights.evaluation.published_scores import PublishedScore
from fastweights.experiments.agents.cells import AgentRun
from fastweights.experiments.grid import Grid, Run, cells
from fastweights.experiments.rows import Row, rows_of
from fastweights.experiments.sequences import presets as sequence_presets
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.experiments.table import Table, each_seed, interval, mean_and_std, other
from fastweights.host.errors import UserError
from fastweights.host.provenance import code_revision
from fastweights.launch import atari, evaluate
from fastweights.launch.cli.atari_options import parse
from fastweights.records import RunFolder, load_checkpoint, save_checkpoint
from fastweights.training.options import RunOptions
from fastweights.training.presets import preset
from tests.experiments.finished_runs import Finished

PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"
EXAMPLE, OF_AGENTS = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
)


def tiny(core, task):
    """Return options of a run with two updates."""
    options = sequence_presets.small(core, task).to_dict()
    sizes = {"train_size": 16, "valid_size": 4, "test_size": 4, "core_width": 8}
    trainer = options["trainer"] | {"epochs": 1, "batch_size": 8}
    return SequenceOptions.from_dict(options | sizes | {"trainer": trainer})


@pytest.fixture
def declared(tmp_path, monkeypatch):
    """Run the page's code with its grid reduced to two tiny runs; return the names it defines."""
    monkeypatch.setitem(sequence_presets.SEQUENCE_PRESETS, "small", tiny)
    monkeypatch.chdir(tmp_path)
    names = {}
    small = EXAMPLE.replace('depth=(3, 5), core=("lstm", "rdn")', 'depth=(2,), core=("lstm",)')
    assert small != EXAMPLE
    exec(compile(small, PAGE, "exec"), names)
    return names


def test_the_documented_runs_of_agents_start_as_declared(declared):
    exec(compile(OF_AGENTS, PAGE, "exec"), declared)
    one = declared["rate_run"](2e-3, "lstm", 2)
    assert one.options.env == "Catch" and one.options.env_options == ()
    assert (one.options.learner.learning_rate, one.options.learner.total_steps) == (2e-3, 100_000)
    assert "--learning-rate" in one.start() and "--preset" in one.start()
    assert declared["final_return"]({"training": {"recent_full_game_return": 0.5}}) == 0.5


def test_the_documented_grid_runs_and_its_files_agree(forked_runs, declared, tmp_path, capsys):
    assert declared["main"]() == 0
    runs = tmp_path / "runs" / "depths"
    assert "ListOps by depth: 2 runs, 2 of them to do: 2-lstm-1, 2-lstm-2\n" in (
        capsys.readouterr().out
    )
    results = json.loads((runs / "results.json").read_text())
    assert [(one["depth"], one["core"], one["seed"]) for one in results] == [
        (2, "lstm", 1),
        (2, "lstm", 2),
    ]
    values = [100 * one["test"]["sequence_accuracy"] for one in results]
    (row,) = json.loads((runs / "table.json").read_text())
    assert row["percent"] == values and row["mean"] == np.mean(values)
    (line,) = csv.DictReader(io.StringIO((runs / "table.csv").read_text()))
    assert float(line["mean"]) == row["mean"] and float(line["seed_2"]) == values[1]
    shown = f"{np.mean(values):.1f} ± {np.std(values):.1f}"
    assert f"| 2 | lstm | {shown} |" in (runs / "table.md").read_text()
    assert (runs / "table.png").read_bytes().startswith(b"\x89PNG")
    assert declared["main"](out=tmp_path / "out") == 0
    assert "2 runs, 0 of them to do\n" in capsys.readouterr().out
    assert (tmp_path / "out" / "table.md").read_text() == (runs / "table.md").read_text()


def test_fewer_runs_at_once_than_none_is_one_line(declared):
    with pytest.raises(UserError, match="--jobs must be at least 0, not -1"):
        declared["main"](at_once=-1)


def row(*values: float, **more) -> Row:
    by_seed = dict(enumerate(values, start=1))
    return Row(labels={"core": "rdn"}, seeds=range(1, 4), values=by_seed, **more)


def test_statistics_are_over_seeds():
    three = row(60.0, 70.0, 80.0)
    low, high = three.interval
    assert (three.mean, mean_and_std(three)) == (70.0, "70.0 ± 8.2")
    assert 60.0 <= low < 65.0 and 75.0 < high <= 80.0
    assert interval(three) == f"{low:.1f} to {high:.1f}"
    assert row(70.0).interval is None and mean_and_std(row(70.0)) == "70.0"
    assert mean_and_std(row()) == "" and mean_and_std(row(failed=[1])) == "failed"
    assert each_seed(row(60.0, 70.0, failed=[3])) == "60.0, 70.0, failed"
    gap = replace(three, values={1: 60.0, 3: 70.0}, failed=[2])
    assert each_seed(gap) == "60.0, failed, 70.0"


def test_a_row_leaves_out_what_failed_or_was_not_measured():
    def run(core: str, seed: int) -> Run:
        score = {3: None, 5: math.nan}.get(seed, 10.0 * seed)
        return Finished({"score": score, "steps": seed}, f"seed-{seed}")

    of_seeds = cells(run, core=["rdn"], seed=(1, 2, 3, 4, 5))
    figures = {"value": lambda run: run["score"], "others": {"steps": lambda run: run["steps"]}}
    (found,) = rows_of(of_seeds, {"seed-2": "out of memory"}, **figures)
    assert (found.values, found.failed) == ({1: 10.0, 4: 40.0}, [2])
    assert (found.mean, found.std, found.others) == (25.0, 15.0, {"steps": 13 / 4})


def test_each_run_of_a_grid_has_a_folder_of_its_own(tmp_path):
    def run(rate: float, seed: int, name: str | None = "seed") -> AgentRun:
        learner = replace(preset("maze", "lstm").learner, learning_rate=rate)
        xpid = name and f"{name}{seed}"
        return AgentRun(RunOptions(seed=seed, savedir=tmp_path, xpid=xpid, learner=learner))

    same = cells(run, rate=(0.1, 0.1), seed=(1, 2))
    assert len(Grid("one run a seed", same, tmp_path).runs) == 2
    for bad, says in (
        (cells(run, rate=(0.1, 0.2), seed=(1,)), f"two runs of the grid have .*{tmp_path}/seed1"),
        (cells(run, rate=(0.1,), seed=(1,), name=(None,)), "needs an xpid"),
        (cells(lambda rate: run(rate, 1), rate=(0.1,)), "needs a seed"),
    ):
        with pytest.raises(ValueError, match=says) as error:
            Grid("bad", bad, tmp_path)
        assert "\n" not in str(error.value)


def test_a_column_has_the_digits_it_is_asked_for():
    two = row(0.5, 0.75, others={"steps": 1234.5, "minutes": None})
    assert mean_and_std(two, digits=2) == "0.62 ± 0.12"
    assert interval(two, digits=2) == "0.50 to 0.75" and each_seed(two, digits=2) == "0.50, 0.75"
    assert other("steps", digits=1)(two) == "1,234.5" and other("minutes")(two) == ""


def test_csv_and_json_have_gaps_and_the_papers_figure():
    table = Table(columns={})
    rows = [row(60.0, 80.0, failed=[3], published=PublishedScore(75.0, 1.5)), row()]
    ours, none = csv.DictReader(io.StringIO(table.csv(rows)))
    assert (ours["mean"], ours["std"], ours["paper_mean"]) == ("70.0", "10.0", "75.0")
    assert (ours["seed_1"], ours["seed_3"], none["mean"], none["paper_mean"]) == ("60.0", *[""] * 3)
    plain = [one.plain("percent") for one in rows]
    assert json.loads(json.dumps(plain[0]))["percent"] == [60.0, 80.0, None]
    assert (plain[0]["failed"], plain[1]["percent"], plain[1]["low"]) == ([3], [None] * 3, None)


def test_json_has_each_value_at_the_place_of_its_seed():
    gap = replace(row(0.5), values={3: 0.9, 1: 0.5}, failed=[2])
    plain = json.loads(json.dumps(gap.plain("return")))
    assert (plain["seeds"], plain["return"]) == ([1, 2, 3], [0.5, None, 0.9])


def agent(tmp_path: Path, **changes) -> RunOptions:
    return replace(preset("maze", "rdn"), **{"savedir": tmp_path, "xpid": "rdn"} | changes)


@pytest.mark.parametrize(
    ("preset_name", "core", "changes"),
    [
        ("maze", "rdn", {"core_heads": 4, "env_options": ("corridor=3",), "channels_last": False}),
        ("maze", "lstm", {"core_forget_bias": None, "seed": 7, "bptt": 1}),
        ("paper", "rdn", {"env": "Pong", "learner": LearnerConfig(discounting=0.9)}),
        ("maze", "lstm", {"env": "Memory-v0"}),  # with the maze's own options
    ],
)
def test_an_agents_command_gives_its_options(tmp_path, preset_name, core, changes):
    where = {"savedir": tmp_path, "xpid": "x", "evaluate_episodes": 5, "num_threads": 1}
    options = replace(preset(preset_name, core), **where | changes)
    command = AgentRun(options, preset_name).start()
    assert parse(command[2:]).run == options


def test_an_agent_killed_before_its_first_checkpoint_begins_again(tmp_path, monkeypatch):
    plain, small = preset("plain", "lstm"), {"num_envs": 4, "batch_size": 4, "unroll_length": 5}
    learner = replace(plain.learner, total_steps=40)
    where = {"env": "Catch", "savedir": tmp_path, "xpid": "x", "evaluate_episodes": 0}
    run = AgentRun(replace(plain, learner=learner, **small, **where), "plain")
    RunFolder.create(tmp_path, "x", run.options.to_dict()).close()
    assert run.begun and not run.trained
    run.check()
    assert atari.main(run.command()[2:]) == 0
    assert run.finished and run.result()["training"]["agent_steps"] >= 40


def agent_with_tests(folder: Path) -> AgentRun:
    """Return a short training on Catch that is tested on games of at most 50 agent steps."""
    plain, small = preset("plain", "lstm"), {"num_envs": 4, "batch_size": 4, "unroll_length": 5}
    where = {"env": "Catch", "savedir": folder, "xpid": "x"}
    tests = {"evaluate_episodes": 3, "evaluate_max_frames": 50}
    options = replace(plain, learner=replace(plain.learner, total_steps=40), **small, **where)
    return AgentRun(replace(options, **tests), "plain")


def test_missing_test_games_are_played_under_the_runs_own_limit(tmp_path):
    run = agent_with_tests(tmp_path)
    assert atari.main(run.command()[2:]) == 0 and run.finished
    own = run.result()["returns"]
    shutil.rmtree(run.path / "evaluations")
    assert not run.finished
    words = run.command()
    assert words[words.index("--num-threads") + 1] == "1"  # as in training
    assert evaluate.main(words[2:]) == 0
    assert run.finished and run.result()["returns"] == own


def test_games_of_an_older_agent_name_its_revision_and_that_of_the_player(tmp_path):
    run = agent_with_tests(tmp_path)
    assert atari.main(run.command()[2:]) == 0
    shutil.rmtree(run.path / "evaluations")
    older = {"commit": "a" * 40, "branch": "main", "is_dirty": False}
    for path in (run.path / "model.tar", *run.path.glob("checkpoints/*.pt")):
        save_checkpoint(load_checkpoint(path) | {"git": older}, path)
    assert evaluate.main(run.command()[2:]) == 0
    (path,) = run.path.glob("evaluations/step_*.json")
    kept = json.loads(path.read_text())
    assert (kept["git"], kept["evaluation_git"]) == (older, code_revision())


def test_a_run_killed_after_its_last_checkpoint_is_tested_in_the_same_fill(forked_runs, tmp_path):
    """It needs two commands: one marks it finished, one plays its test games."""
    run = agent_with_tests(tmp_path)
    assert atari.main(run.command()[2:]) == 0
    shutil.rmtree(run.path / "evaluations")
    meta = json.loads((run.path / "meta.json").read_text())
    del meta["successful"]
    (run.path / "meta.json").write_text(json.dumps(meta | {"date_end": None}))
    assert not run.trained
    grid = Grid("", cells(lambda seed: run, seed=(1,)), tmp_path)
    assert grid.fill(1) == {} and run.finished


def test_a_shorter_run_is_no_result_of_a_longer_one_nor_the_reverse(forked_runs, tmp_path):
    """With a constant learning rate a finished run may be lengthened."""
    short = agent_with_tests(tmp_path)
    learner = short.options.learner
    constant = replace(learner, final_learning_rate=learner.learning_rate)
    short = replace(short, options=replace(short.options, learner=constant))
    longer = replace(constant, total_steps=100)
    long = replace(short, options=replace(short.options, learner=longer))

    def fill(run: AgentRun) -> tuple[dict, AgentRun]:
        return Grid("", cells(lambda seed: run, seed=(1,)), tmp_path).fill(1), run.result()

    failures, result = fill(short)
    assert failures == {} and result["training"]["agent_steps"] == 40
    assert not long.trained
    failures, result = fill(long)
    assert failures == {} and long.finished
    assert (result["training"]["agent_steps"], result["options"]["total_steps"]) == (100, 100)
    with pytest.raises(UserError, match=r"which has --total-steps 40 \(was 100\)"):
        fill(short)


def test_cells_are_every_combination_and_share_runs(tmp_path):
    def run(core, seed, measure):
        return AgentRun(agent(tmp_path, seed=seed, xpid=f"{core}-{seed}"), "maze")

    made = cells(run, core=("rdn",), seed=(1, 2), measure=("return", "length"))
    assert [tuple(cell.labels.values()) for cell in made] == [
        *(("rdn", 1, "return"), ("rdn", 1, "length")),
        *(("rdn", 2, "return"), ("rdn", 2, "length")),
    ]
    assert [one.name for one in Grid("", made, tmp_path).runs] == ["rdn-1", "rdn-2"]
