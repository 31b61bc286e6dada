"""Small runs of the real command in this process, for tests of both schedules."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from fastweights.host.progress import ProgressDisplay
from fastweights.host.stages import STAGES
from fastweights.launch import atari
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs

CATCH = ("--env", "Catch", "--core", "feedforward")
SMALL = ("--num-threads", "1", "--num-envs", "4", "--batch-size", "4", "--unroll-length", "5")
GROUPS = ("--schedule", "asynchronous", "--env-groups", "2", "--queue-size", "2")
CLOCKS = ("_time", "agent_steps_per_second", "cpu_seconds")
WALL_CLOCK = (*CLOCKS, *(f"seconds_{stage}" for stage in STAGES))


class StoppingDisplay(ProgressDisplay):
    """A display that interrupts the run while it shows the first update."""

    def update(self, step, row):
        super().update(step, row)
        signal.raise_signal(signal.SIGINT)


def train(folder: Path, xpid: str, *options: object) -> int:
    """Run the command and return its exit code; later options take precedence."""
    where = ("--savedir", folder, "--xpid", xpid)
    return atari.main([*map(str, (*CATCH, *SMALL, *where, *options))])


def logged(run_folder: Path) -> dict[str, list]:
    """Return the log without the columns that depend on the clock."""
    logs = read_logs(run_folder / "logs.csv")
    return {name: column for name, column in logs.items() if name not in WALL_CLOCK}


def weights(run_folder: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(run_folder / "model.tar")["model_state_dict"]


def assert_same_run(one: Path, two: Path) -> None:
    assert logged(one) == logged(two)
    theirs = weights(two)
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, theirs[name]), name


def acting_threads() -> list[str]:
    """Return the names of the acting threads that are still running after a minute."""
    acting = [each for each in threading.enumerate() if each.name.startswith("actor")]
    for thread in acting:
        thread.join(60)
    return [thread.name for thread in acting if thread.is_alive()]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fail after a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold within a minute"
        time.sleep(0.02)
