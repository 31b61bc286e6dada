"""What the tests of both schedules share: small runs of the real command in this process."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from fastweights.host.progress import Display
from fastweights.host.stages import STAGES
from fastweights.launch import atari
from fastweights.records.checkpoints import load
from fastweights.records.log_table import read_logs

CATCH = ("--env", "Catch", "--core", "feedforward")
SMALL = ("--num-threads", "1", "--num-envs", "4", "--batch-size", "4", "--unroll-length", "5")
GROUPS = ("--schedule", "asynchronous", "--env-groups", "2", "--queue-size", "2")
CLOCKS = ("_time", "agent_steps_per_second", "cpu_seconds")
WALL_CLOCK = (*CLOCKS, *(f"seconds_{stage}" for stage in STAGES))


class StoppingDisplay(Display):
    """Somebody presses Ctrl-C while it shows the first update."""

    def update(self, step, row):
        super().update(step, row)
        signal.raise_signal(signal.SIGINT)


def train(folder: Path, xpid: str, *options: object) -> int:
    """Runs the command; later options win."""
    where = ("--savedir", folder, "--xpid", xpid)
    return atari.main([*map(str, (*CATCH, *SMALL, *where, *options))])


def logged(run_folder: Path) -> dict[str, list]:
    """The log without what depends on the clock."""
    logs = read_logs(run_folder / "logs.csv")
    return {name: column for name, column in logs.items() if name not in WALL_CLOCK}


def weights(run_folder: Path) -> dict[str, torch.Tensor]:
    return load(run_folder / "model.tar")["model_state_dict"]


def assert_same_run(one: Path, two: Path) -> None:
    assert logged(one) == logged(two)
    theirs = weights(two)
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, theirs[name]), name


def acting_threads() -> list[str]:
    """Those that do not end, though they have a minute to."""
    acting = [each for each in threading.enumerate() if each.name.startswith("actor")]
    for thread in acting:
        thread.join(60)
    return [thread.name for thread in acting if thread.is_alive()]


def wait_until(condition: Callable[[], bool]) -> None:
    """A minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
