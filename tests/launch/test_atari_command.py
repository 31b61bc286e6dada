"""`launch/atari.py` and `launch/evaluate.py` as a person runs them: real processes and signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_runs import logged

from launch import atari, evaluate
from launch.checkpoints import load
from launch.evaluation_file import evaluations_in
from launch.log_table import read_logs

ROOT = Path(__file__).parents[2]
ON_ONE_WORKER = pytest.mark.xdist_group("qbert")  # one run for all of them
SMALL = ["--num-threads", "1", "--num-envs", "4", "--batch-size", "4"]
TINY = ["--core-width", "16", "--core-heads", "2", "--core-layers", "1"]
MAZE = ["--env", "TMaze", "--env-options", "corridor=3", "--unroll-length", "8", *SMALL, *TINY]
QBERT = ["--env", "Qbert", "--stem", "shallow", "--unroll-length", "5", *SMALL, *TINY]


def command(script: str, *arguments: object) -> list[str]:
    return [sys.executable, str(ROOT / "launch" / script), *map(str, arguments)]


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "200"}
    return subprocess.run(
        command(script, *arguments), capture_output=True, text=True, timeout=120, env=environment
    )


def train(folder: Path, xpid: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run("atari.py", "--savedir", folder, "--xpid", xpid, *arguments)


def train_here(folder: Path, xpid: str, *arguments: object) -> int:
    """The command in this process: the same parsing and run without a start of Python and torch."""
    return atari.main([*map(str, ("--savedir", folder, "--xpid", xpid, *arguments))])


def start(folder: Path, xpid: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("atari.py", "--savedir", folder, "--xpid", xpid, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Waits for `condition` while `process` lives, a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "still waiting after a minute"
        time.sleep(0.02)


def newest_checkpoint(run_folder: Path) -> int:
    names = (path.stem for path in (run_folder / "checkpoints").glob("step_*.pt"))
    return max((int(name.removeprefix("step_")) for name in names), default=0)


def newest_row(run_folder: Path) -> int:
    if not (run_folder / "logs.csv").exists():
        return 0
    return max(read_logs(run_folder / "logs.csv").get("step", ()), default=0)


@pytest.fixture(scope="module")
def qbert(tmp_path_factory) -> Path:
    """A run folder of an agent that has seen 200 steps of the real Qbert."""
    folder = tmp_path_factory.mktemp("runs")
    assert train_here(folder, "qbert", *QBERT, "--core", "rdn", "--total-steps", 200) == 0
    return folder / "qbert"


@ON_ONE_WORKER
def test_a_run_on_real_qbert_leaves_a_torchbeast_folder(qbert):
    meta = json.loads((qbert / "meta.json").read_text())
    assert meta["successful"] and meta["xpid"] == "qbert"
    assert meta["args"]["env"] == "Qbert" and meta["args"]["total_steps"] == 200
    assert (qbert / "logs.csv").read_text().startswith("# _tick,_time,step,")
    assert logged(qbert)["step"] == [20 * (tick + 1) for tick in range(10)]
    assert (qbert.parent / "latest").resolve() == qbert.resolve()
    assert list((qbert / "tensorboard").glob("events.*"))
    assert load(qbert / "model.tar")["step"] == 200


@ON_ONE_WORKER
def test_the_learning_rate_falls_linearly_to_zero(qbert):
    logs = logged(qbert)
    expected = [6e-4 * (1 - step / 200) for step in logs["step"]]
    assert logs["learning_rate"] == pytest.approx(expected, abs=1e-12)


@ON_ONE_WORKER
def test_evaluate_plays_films_and_keeps_every_episode(qbert):
    games = ["--episodes", 2, "--repeats", 2, "--max-frames", 400, "--action-mode", "both"]
    done = run("evaluate.py", qbert, *games, "--clip-seconds", 2, "--num-threads", 1)
    assert done.returncode == 0, done.stderr
    for expected in (
        "full-game return",
        "200 agent steps",
        "argmax",
        "sampled",
        "human-normalised",
    ):
        assert expected in done.stdout
    assert "argmax: 4 of 4 games were cut after 400 emulator frames" in done.stdout
    assert "rdn, 50 M agent steps (Irie et al. 2021, a life)" in done.stdout
    kept = evaluations_in(qbert)
    assert [one.action_mode for one in kept.values()] == ["argmax", "sampled"]
    for path, evaluation in kept.items():
        about = json.loads(path.read_text())
        assert about["checkpoint"] == "step_000000000200.pt" and about["run"] == "qbert"
        assert len(evaluation.episodes) == 4 and path.with_suffix(".csv").exists()
        for game in evaluation.episodes:
            assert sum(game.life_returns) == game.episode_return
    assert len((qbert / "evaluations.csv").read_text().splitlines()) == 3
    (clip,) = (qbert / "clips").glob("*.mp4")
    assert clip.stat().st_size > 1000


@ON_ONE_WORKER
def test_fewer_actions_than_a_protocol_offers_are_enough(qbert):
    games = ["--episodes", 1, "--repeats", 1, "--max-frames", 100, "--no-clip"]
    assert evaluate.main([*map(str, (qbert, *games, "--protocol", "machado"))]) == 0
    (evaluation,) = (e for e in evaluations_in(qbert).values() if e.protocol == "machado")
    assert evaluation.rules["sticky"] == 0.25 and not evaluation.rules["full_action_set"]


@ON_ONE_WORKER
def test_the_same_seed_gives_the_same_logs_and_weights(qbert, tmp_path):
    """In another process too."""
    again = train(tmp_path, "again", *QBERT, "--core", "rdn", "--total-steps", 200)
    assert again.returncode == 0, again.stderr
    assert logged(tmp_path / "again") == logged(qbert)
    one, two = load(qbert / "model.tar"), load(tmp_path / "again" / "model.tar")
    for name, weights in one["model_state_dict"].items():
        assert torch.equal(weights, two["model_state_dict"][name]), name


@ON_ONE_WORKER
def test_another_seed_gives_other_logs(qbert, tmp_path):
    seed = ("--total-steps", 200, "--seed", 2)
    assert train_here(tmp_path, "other", *QBERT, "--core", "rdn", *seed) == 0
    assert logged(tmp_path / "other")["total_loss"] != logged(qbert)["total_loss"]


@pytest.mark.parametrize("core", ["feedforward", "lstm", "lt", "delta_net", "delta_rnn", "srwm"])
def test_every_core_trains_from_the_command_line(core, tmp_path):
    tiny = [] if core == "feedforward" else ["--core-width", "16"]
    maze = ["--env", "TMaze", "--unroll-length", "8", *SMALL]
    assert train_here(tmp_path, core, *maze, *tiny, "--core", core, "--total-steps", 64) == 0
    assert logged(tmp_path / core)["step"] == [32, 64]


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path):
    often = ["--checkpoint-minutes", "0.002", "--core", "rdn"]
    process = start(tmp_path, "killed", *MAZE, *often, "--total-steps", 1_000_000)
    wait_until(lambda: newest_checkpoint(tmp_path / "killed") > 320, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    saved = load(tmp_path / "killed" / "model.tar")["step"]
    killed_at = newest_row(tmp_path / "killed")
    assert 0 < saved <= killed_at

    process = subprocess.Popen(
        command("atari.py", "--resume", tmp_path / "killed", "--checkpoint-minutes", 1),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(lambda: newest_row(tmp_path / "killed") > killed_at + 64, process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, output

    logs = logged(tmp_path / "killed")
    assert logs["step"] == [32 * (tick + 1) for tick in range(len(logs["step"]))]
    assert logs["_tick"] == list(range(len(logs["step"])))
    assert logs["updates"] == [tick + 1 for tick in range(len(logs["step"]))]
    expected = [6e-4 * (1 - step / 1_000_000) for step in logs["step"]]
    assert logs["learning_rate"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_saves_and_says_how_to_go_on(number, tmp_path):
    process = start(tmp_path, "stopped", *MAZE, "--core", "lt", "--total-steps", 1_000_000)
    wait_until(lambda: newest_row(tmp_path / "stopped") > 64, process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output
    run_folder = tmp_path / "stopped"
    assert f"python launch/atari.py --resume {run_folder}" in output
    assert f"python launch/evaluate.py {run_folder}" in output
    assert "Traceback" not in output
    assert load(run_folder / "model.tar")["step"] == max(logged(run_folder)["step"])
    assert json.loads((run_folder / "meta.json").read_text())["successful"] is False


def test_the_closing_show_has_a_table_a_curve_and_a_clip(tmp_path):
    done = train(tmp_path, "show", *MAZE, "--total-steps", 320, "--evaluate-episodes", 4)
    assert done.returncode == 0, done.stderr
    for expected in ("before training", "after training", "full-game return", "per-life return"):
        assert expected in done.stdout
    for path in ("learning_curve.png", "clips/frame.png"):
        assert str(tmp_path / "show" / path) in done.stdout
        assert (tmp_path / "show" / path).stat().st_size > 1000
    assert list((tmp_path / "show" / "clips").glob("*.mp4"))


def test_two_processes_never_write_one_run_folder(tmp_path):
    process = start(tmp_path, "shared", *MAZE, "--total-steps", 1_000_000)
    wait_until(lambda: newest_row(tmp_path / "shared") > 0, process)
    second = train(tmp_path, "shared", *MAZE, "--total-steps", 320)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert second.returncode == 2
    assert second.stderr.startswith("error: ") and second.stderr.count("\n") == 1
