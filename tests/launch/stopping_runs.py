"""Real processes that are told to stop at every stage of a step; run by test_shutdown.py.

    python tests/launch/stopping_runs.py FOLDER

For every case a child is forked, after one import for all. It gets SIGINT the third time that it
enters the stage, in whatever thread, and dwells there; one is stuck in its emulator for a minute.
Prints a line of JSON for each: `case`, exit `code`, `seconds` from the signal to the exit, `left`,
whether a process of its group outlived it, and the `stages` that the learner entered meanwhile.
"""

import gc
import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import gymnasium
import tensorboard.summary.writer.record_writer  # noqa: F401
import torch._dynamo  # noqa: F401

import launch.asynchronous
import launch.stages
from envs.catch import Catch
from launch import atari
from launch.stages import STAGES

LOCKSTEP = ("emulation", "transfer", "inference", "gradient", "exchange", "optimise")
LOCKSTEP = (*LOCKSTEP, "log", "save")
CASES = (*((s, "lockstep") for s in LOCKSTEP), *((s, "asynchronous") for s in (*STAGES, "stuck")))
SMALL = ("--core", "feedforward", "--num-envs", "4", "--batch-size", "4", "--unroll-length", "5")
DWELL, STUCK = 0.3, 60.0  # seconds
AT_ONCE = 3
told = threading.Event()


class StuckCatch(Catch):
    """Its thirtieth step takes a minute."""

    left = 30

    def step(self, actions):
        self.left -= 1
        if self.left == 0:
            _signal()
            time.sleep(STUCK)
        return super().step(actions)


def _signal() -> None:
    """Once: a second signal means more."""
    signalled = Path(os.environ["SIGNALLED"])
    if not signalled.exists():
        signalled.write_text(f"{time.time()}\n")
        os.kill(os.getpid(), signal.SIGINT)
        told.set()


def interrupting(stage: str):
    """What a stage is annotated with: the signal where `stage` is entered for the third time."""
    entered = 0

    @contextmanager
    def annotate(name: str):
        nonlocal entered
        if told.is_set() and threading.current_thread() is threading.main_thread():
            with Path(os.environ["SIGNALLED"]).open("a") as signalled:
                signalled.write(f"{name}\n")
        entered += name == stage
        if name == stage and entered == 3:
            _signal()
            time.sleep(DWELL)
        yield

    return annotate


def run(folder: Path, stage: str, schedule: str) -> None:
    """The command in a child; ends the process as the command does."""
    os.setsid()
    log = os.open(folder / f"{schedule}-{stage}.out", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1), os.dup2(log, 2)
    os.environ["SIGNALLED"] = str(folder / f"{schedule}-{stage}.signalled")
    launch.stages.nullcontext = interrupting(stage)
    if stage != "stuck":
        launch.asynchronous._PATIENCE = 60.0
    gymnasium.register("Stuck-v0", vector_entry_point=StuckCatch)
    where = ["--savedir", str(folder), "--xpid", f"{schedule}-{stage}", "--schedule", schedule]
    env = ["--env", "Stuck-v0" if stage == "stuck" else "Catch", "--num-threads", "1"]
    sys.exit(atari.main([*env, *SMALL, *where, "--checkpoint-minutes", "1e-6"]))


def main() -> None:
    folder, waiting, children = Path(sys.argv[1]), list(CASES), {}
    gc.freeze()  # or each child would copy all that was imported when it ends
    while waiting or children:
        while waiting and len(children) < AT_ONCE:
            stage, schedule = waiting.pop()
            child = os.fork()
            if child == 0:
                run(folder, stage, schedule)
            children[child] = f"{schedule}-{stage}"
        child, status = os.wait()
        case = children.pop(child)
        signalled = folder / f"{case}.signalled"
        since, *stages = signalled.read_text().split() if signalled.exists() else ("nan",)
        end = {"case": case, "code": os.waitstatus_to_exitcode(status), "left": _outlived(child)}
        end |= {"seconds": time.time() - float(since), "stages": stages}
        print(json.dumps(end), flush=True)


def _outlived(group: int) -> bool:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main()
