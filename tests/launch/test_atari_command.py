"""`launch/atari.py` and `launch/evaluate.py` with real games, processes and signals."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import imageio.v3 as imageio
import pytest
import torch
from forked_runs import ForkedRun
from forks import Program
from small_runs import logged

from fastweights.cores import CORES, core_kind
from fastweights.evaluation.evaluation_file import evaluations_in
from fastweights.launch import atari, evaluate
from fastweights.launch.cli.atari_options import parse
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs
from fastweights.training.options import RunOptions
from fastweights.training.presets import preset
from fastweights.training.schedules.lockstep import Lockstep

ROOT = Path(__file__).parents[2]
SMALL = ["--num-threads", "1", "--num-envs", "4", "--batch-size", "4"]
TINY = ["--core-width", "16", "--core-heads", "2", "--core-layers", "1"]
MAZE = ["--env", "TMaze", "--env-options", "corridor=3", "--unroll-length", "8", *SMALL, *TINY]
TWO = ["--num-threads", "1", "--num-envs", "2", "--batch-size", "2"]
QBERT = ["--env", "Qbert", "--stem", "shallow", "--unroll-length", "10", *TWO, *TINY]


def train(folder: Path, xpid: str, *arguments: object) -> int:
    """Run the command in this process, which avoids starting Python and importing torch."""
    return atari.main([*map(str, ("--savedir", folder, "--xpid", xpid, *arguments))])


LOCAL = """
import sys
from fastweights.launch import atari
from fastweights.training.options import RunOptions
from fastweights.training.schedules.choice import plan_of

plan_of(RunOptions())
assert not [name for name in sys.modules if name.split(".")[0] == "ray"]
"""


def test_a_local_run_imports_no_ray():
    done = Program(LOCAL).end()
    assert done.returncode == 0, done.stderr


def test_no_arguments_mean_the_defaults():
    assert parse([]).run == preset("paper", RunOptions().core)


def start(folder: Path, xpid: str, *arguments: object) -> ForkedRun:
    where = ("--savedir", folder, "--xpid", xpid)
    return ForkedRun(folder / f"{xpid}.out", *where, *arguments, "--total-steps", 1_000_000)


def newest_row(run_folder: Path) -> int:
    if not (run_folder / "logs.csv").exists():
        return 0
    return max(read_logs(run_folder / "logs.csv").get("step", ()), default=0)


@pytest.fixture(scope="module")
def qbert(tmp_path_factory) -> Path:
    """Return a run folder of an agent trained for 200 steps of Qbert."""
    folder = tmp_path_factory.mktemp("runs")
    assert train(folder, "qbert", *QBERT, "--core", "rdn", "--total-steps", 200) == 0
    return folder / "qbert"


def test_a_run_on_real_qbert_leaves_a_torchbeast_folder(qbert):
    meta = json.loads((qbert / "meta.json").read_text())
    assert meta["successful"] and meta["xpid"] == "qbert"
    assert meta["args"]["env"] == "Qbert" and meta["args"]["total_steps"] == 200
    assert (qbert / "logs.csv").read_text().startswith("# _tick,_time,step,")
    assert logged(qbert)["step"] == [20 * (tick + 1) for tick in range(10)]
    assert (qbert.parent / "latest").resolve() == qbert.resolve()
    assert list((qbert / "tensorboard").glob("events.*"))
    assert load_checkpoint(qbert / "model.tar")["step"] == 200


def test_meta_tells_every_option_of_the_core(qbert):
    """Options with default values are included, because defaults may change later."""
    told = json.loads((qbert / "meta.json").read_text())["network"]
    assert set(told["core_options"]) == set(core_kind("rdn").options()) and told["core"] == "rdn"
    weights = load_checkpoint(qbert / "model.tar")["model_state_dict"]
    assert told["parameters"] == sum(weight.numel() for weight in weights.values())


def test_the_learning_rate_falls_linearly_to_zero(qbert):
    logs = logged(qbert)
    expected = [6e-4 * (1 - step / 200) for step in logs["step"]]
    assert logs["learning_rate"] == pytest.approx(expected, abs=1e-12)


def test_evaluate_plays_films_and_keeps_every_episode(qbert, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    games = ["--episodes", 1, "--repeats", 2, "--max-frames", 200, "--action-mode", "both"]
    clip = ["--clip-seconds", 2, "--num-threads", 1]
    assert evaluate.main([*map(str, (qbert, qbert, *games, *clip))]) == 0
    said = capsys.readouterr().out
    for expected in (
        "full-game return",
        "200 agent steps",
        "argmax",
        "sampled",
        "Human-normalised",
    ):
        assert expected in said
    assert "argmax: 2 of 2 games reached the limit of 200 frames; their returns" in said
    # Two agents and two modes share one table of references.
    assert said.count("Irie et al. 2021") == 1
    assert all(f"qbert, 200 steps (rdn, {mode})" in said for mode in ("argmax", "sampled"))
    kept = evaluations_in(qbert)
    assert [one.action_mode for one in kept.values()] == ["argmax", "sampled"]
    for path, evaluation in kept.items():
        about = json.loads(path.read_text())
        assert about["checkpoint"] == "step_000000000200.pt" and about["run"] == "qbert"
        assert len(evaluation.episodes) == 2 and path.with_suffix(".csv").exists()
        for game in evaluation.episodes:
            assert sum(game.life_returns) == game.episode_return
    assert len((qbert / "evaluations.csv").read_text().splitlines()) == 3
    (clip,) = (qbert / "clips").glob("*.mp4")
    assert clip.stat().st_size > 1000 and imageio.imread(clip).shape[0] == 30  # 15 a second


def test_fewer_actions_than_a_protocol_offers_are_enough(qbert):
    games = ["--episodes", 1, "--repeats", 1, "--max-frames", 100, "--no-clip"]
    assert evaluate.main([*map(str, (qbert, *games, "--protocol", "machado"))]) == 0
    (evaluation,) = (e for e in evaluations_in(qbert).values() if e.protocol == "machado")
    assert evaluation.rules["sticky"] == 0.25 and not evaluation.rules["full_action_set"]


def test_the_same_seed_gives_the_same_logs_and_weights(qbert, tmp_path):
    """The second run is another process, started from the shell."""
    command = [sys.executable, ROOT / "launch" / "atari.py", "--savedir", tmp_path]
    options = ["--xpid", "again", *QBERT, "--core", "rdn", "--total-steps", 200]
    again = subprocess.run([*map(str, (*command, *options))], capture_output=True, timeout=300)
    assert again.returncode == 0, again.stderr
    assert logged(tmp_path / "again") == logged(qbert)
    one, two = (
        load_checkpoint(qbert / "model.tar"),
        load_checkpoint(tmp_path / "again" / "model.tar"),
    )
    for name, weights in one["model_state_dict"].items():
        assert torch.equal(weights, two["model_state_dict"][name]), name


def test_another_seed_gives_other_logs(qbert, tmp_path):
    seed = ("--total-steps", 20, "--seed", 2)
    assert train(tmp_path, "other", *QBERT, "--core", "rdn", *seed) == 0
    assert logged(tmp_path / "other")["total_loss"][0] != logged(qbert)["total_loss"][0]


@pytest.mark.parametrize("core", CORES)
def test_every_core_trains_from_the_command_line(core, tmp_path):
    tiny = ["--core-width", "16"] if "width" in CORES[core].options() else []
    maze = ["--env", "TMaze", "--unroll-length", "8", *SMALL]
    assert train(tmp_path, core, *maze, *tiny, "--core", core, "--total-steps", 64) == 0
    assert logged(tmp_path / core)["step"] == [32, 64]


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path):
    often = ["--checkpoint-minutes", "0.002", "--core", "rdn"]
    killed = start(tmp_path, "killed", *MAZE, *often)
    latest = tmp_path / "killed" / "model.tar"
    killed.wait_until(lambda: latest.exists() and load_checkpoint(latest)["step"] > 320)
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    saved = load_checkpoint(latest)["step"]
    killed_at = newest_row(tmp_path / "killed")
    assert 0 < saved <= killed_at

    seldom = ["--checkpoint-minutes", 1]
    resumed = ForkedRun(tmp_path / "resumed.out", "--resume", tmp_path / "killed", *seldom)
    resumed.wait_until(lambda: newest_row(tmp_path / "killed") > killed_at + 64)
    assert resumed.end(signal.SIGTERM) == 128 + signal.SIGTERM, resumed.said()

    logs = logged(tmp_path / "killed")
    assert logs["step"] == [32 * (tick + 1) for tick in range(len(logs["step"]))]
    assert logs["_tick"] == list(range(len(logs["step"])))
    assert logs["updates"] == [tick + 1 for tick in range(len(logs["step"]))]
    expected = [6e-4 * (1 - step / 1_000_000) for step in logs["step"]]
    assert logs["learning_rate"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_and_says_how_to_go_on(number, tmp_path):
    stopped, run_folder = start(tmp_path, "stopped", *MAZE, "--core", "lt"), tmp_path / "stopped"
    stopped.wait_until(lambda: newest_row(run_folder) > 64)
    assert stopped.end(number) == 128 + number, stopped.said()
    output = stopped.said()
    assert f"python launch/atari.py --resume {run_folder}" in output
    assert f"python launch/evaluate.py {run_folder}" in output
    assert "Traceback" not in output
    assert load_checkpoint(run_folder / "model.tar")["step"] == max(logged(run_folder)["step"])
    assert json.loads((run_folder / "meta.json").read_text())["successful"] is False


def test_the_closing_show_has_a_table_a_curve_and_a_clip(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert train(tmp_path, "show", *MAZE, "--total-steps", 320, "--evaluate-episodes", 4) == 0
    said = capsys.readouterr().out
    for expected in ("before training", "after training", "full-game return"):
        assert expected in said
    assert "life" not in said and "lives" not in said  # a maze has no lives
    for path in ("learning_curve.png", "clips/frame.png"):
        assert str(tmp_path / "show" / path) in said
        assert (tmp_path / "show" / path).stat().st_size > 1000
    assert list((tmp_path / "show" / "clips").glob("*.mp4"))


def test_what_fails_after_an_update_leaves_its_row(tmp_path, monkeypatch):
    publish = Lockstep.publish

    def fail(self, version: int) -> None:
        if version == 3:
            raise ZeroDivisionError("nobody takes the weights")
        publish(self, version)

    monkeypatch.setattr(Lockstep, "publish", fail)
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, "failed", *MAZE, "--total-steps", 640)
    steps = read_logs(tmp_path / "failed")["step"]
    assert (
        len(steps) == 3 and load_checkpoint(tmp_path / "failed" / "model.tar")["step"] == steps[-1]
    )


def test_two_processes_never_write_one_run_folder(tmp_path):
    first = start(tmp_path, "shared", *MAZE)
    first.wait_until(lambda: newest_row(tmp_path / "shared") > 0)
    where = ("--savedir", tmp_path, "--xpid", "shared", "--auto-resume")
    second = ForkedRun(tmp_path / "second.out", *where, *MAZE, "--total-steps", 1_000_000)
    code = second.wait(120)
    assert first.end(signal.SIGTERM) == 128 + signal.SIGTERM, first.said()
    assert code == 2
    last_line = second.said().splitlines()[-1]
    assert last_line.startswith("error: ") and f"process {first.pid} on" in last_line
