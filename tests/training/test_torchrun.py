"""Runs under torchrun: it starts learners, restarts them after `kill -9`, forwards Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs

ROOT = Path(__file__).parents[2]
SMALL = ("--env", "Catch", "--core", "feedforward", "--num-envs", "4", "--batch-size", "4")
SMALL = (*SMALL, "--unroll-length", "5", "--num-threads", "1", "--checkpoint-minutes", "0.005")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")

pytestmark = pytest.mark.faults


def start(folder: Path, *options: str, restarts: int = 0, count: int = 2) -> subprocess.Popen[str]:
    command = [sys.executable, *TORCHRUN, "--max-restarts", str(restarts)]
    command += ["--nproc-per-node", str(count)]
    where = ("--savedir", str(folder), "--xpid", "run")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, str(ROOT / "launch" / "atari.py"), *SMALL, *where, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def learners(process: subprocess.Popen[str]) -> list[int]:
    """Return the processes of the two ranks, in any order."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children]


def saved(run: Path) -> bool:
    return (run / "model.tar").exists() and load_checkpoint(run / "model.tar")["step"] > 0


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="needs Linux: finds the learners in /proc"
)
def test_a_killed_learner_is_started_again_and_no_step_is_counted_twice(tmp_path):
    run = tmp_path / "run"
    process = start(tmp_path, "--total-steps", "8000", "--auto-resume", restarts=3)
    for victim in (0, 1):
        wait_for(lambda: saved(run) and len(learners(process)) == 2, process)
        before = learners(process)
        os.kill(before[victim], signal.SIGKILL)
        wait_for(
            lambda before=before: not set(before) & set(learners(process)) or saved_all(run),
            process,
        )
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert read_logs(run)["step"] == list(range(20, 8_001, 20))
    assert load_checkpoint(run / "model.tar")["step"] == 8_000


def saved_all(run: Path) -> bool:
    return max(read_logs(run)["step"], default=0) == 8_000


@pytest.mark.parametrize("count", [1, 2])
def test_learners_end_and_save_when_torchrun_is_killed(count, tmp_path):
    run = tmp_path / "run"
    process = start(tmp_path, "--total-steps", "100000000", count=count)
    wait_for(lambda: saved(run), process)
    process.kill()
    output, _ = process.communicate(timeout=60)  # returns once all learners have closed the pipe
    assert "the torchrun that started this learner has ended" in output
    assert load_checkpoint(run / "model.tar")["step"] == max(read_logs(run)["step"])


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="needs Linux: finds the learners in /proc"
)
def test_a_signal_to_everyone_stops_all_and_saves(tmp_path):
    run = tmp_path / "run"
    process = start(tmp_path, "--total-steps", "100000000")
    wait_for(lambda: saved(run), process)
    for learner in learners(process):
        os.kill(learner, signal.SIGINT)
    process.send_signal(signal.SIGINT)  # torchrun forwards it
    output, _ = process.communicate(timeout=60)  # returns once all learners have closed the pipe
    assert f"--resume {run}" in output
    assert load_checkpoint(run / "model.tar")["step"] == max(read_logs(run)["step"])
