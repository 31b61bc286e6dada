"""Real processes that are stopped, or fail, at each stage of a step; for test_shutdown.py.

    python tests/training/stopping_runs.py FOLDER

A child is forked for every case after the imports. It gets SIGINT when it enters the stage for the
third time, in any thread, and stays there for a while; in one case the emulator hangs for a minute.
Other children raise at the stage once something has been learned. The script prints a line of JSON
for each: `case`, exit `code`, `seconds` from the signal to the exit, `left` (whether a process of
its group is still alive), and the `stages` that the learner entered in between.
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

import fastweights.host.stages
import fastweights.training.schedules.asynchronous
from fastweights.envs.catch import Catch
from fastweights.host.stages import STAGES
from fastweights.launch import atari

LOCKSTEP = ("emulation", "transfer", "inference", "gradient", "exchange", "optimise")
LOCKSTEP = (*LOCKSTEP, "log", "save")
STOPPED = {"lockstep": LOCKSTEP, "asynchronous": (*STAGES, "stuck")}
ACCIDENTS = ("emulation", "transfer", "inference", "gradient")
CASES = (
    *((f"{schedule}-{stage}", "stopped") for schedule in STOPPED for stage in STOPPED[schedule]),
    *((f"{schedule}-{stage}", "broken") for schedule in STOPPED for stage in ACCIDENTS),
)
SMALL = ("--core", "feedforward", "--num-envs", "4", "--batch-size", "4", "--unroll-length", "5")
DWELL, STUCK = 0.3, 60.0  # seconds
AT_ENTRY = {"stopped": 3, "broken": 40}
AT_ONCE = 3
told = threading.Event()


class StuckCatch(Catch):
    """A game whose thirtieth step takes a minute."""

    left = 30

    def step(self, actions):
        self.left -= 1
        if self.left == 0:
            _signal()
            time.sleep(STUCK)
        return super().step(actions)


def _signal() -> None:
    """Send SIGINT once, because a second signal has another meaning."""
    signalled = Path(os.environ["SIGNALLED"])
    if not signalled.exists():
        signalled.write_text(f"{time.time()}\n")
        os.kill(os.getpid(), signal.SIGINT)
        told.set()


def _raise() -> None:
    Path(os.environ["SIGNALLED"]).write_text(f"{time.time()}\n")
    raise ZeroDivisionError("an accident")


def interrupting(stage: str, what: str):
    """Return an annotation of stages that does `what` when `stage` is entered."""
    entered, event = 0, {"stopped": _signal, "broken": _raise}[what]

    @contextmanager
    def annotate(name: str):
        nonlocal entered
        if told.is_set() and threading.current_thread() is threading.main_thread():
            with Path(os.environ["SIGNALLED"]).open("a") as signalled:
                signalled.write(f"{name}\n")
        entered += name == stage
        if name == stage and entered == AT_ENTRY[what]:
            event()
            time.sleep(DWELL)
        yield

    return annotate


def run(folder: Path, case: str, what: str) -> None:
    """Run the command in a child; the process ends as the command does."""
    os.setsid()
    name, (schedule, stage) = f"{case}-{what}", case.split("-")
    log = os.open(folder / f"{name}.out", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1), os.dup2(log, 2)
    os.environ["SIGNALLED"] = str(folder / f"{name}.signalled")
    fastweights.host.stages.nullcontext = interrupting(stage, what)
    if stage != "stuck":
        fastweights.training.schedules.asynchronous._PATIENCE = 60.0
    gymnasium.register("Stuck-v0", vector_entry_point=StuckCatch)
    where = ["--savedir", str(folder), "--xpid", name, "--schedule", schedule]
    env = ["--env", "Stuck-v0" if stage == "stuck" else "Catch", "--num-threads", "1"]
    sys.exit(atari.main([*env, *SMALL, *where, "--checkpoint-minutes", "1e-6"]))


def main() -> None:
    folder, waiting, children = Path(sys.argv[1]), list(CASES), {}
    gc.freeze()  # otherwise each child's exit would copy all imported objects
    while waiting or children:
        while waiting and len(children) < AT_ONCE:
            case, what = waiting.pop()
            child = os.fork()
            if child == 0:
                run(folder, case, what)
            children[child] = f"{case}-{what}"
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
