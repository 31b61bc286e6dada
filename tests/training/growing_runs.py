"""Runs that report how much memory they hold; run by test_shutdown.py.

    python tests/training/growing_runs.py FOLDER

Forks a child for each schedule, and one that keeps a reference to every rollout. Prints
`grown:CASE MIB` for each: the growth of its resident set from early to late updates.
"""

import gc
import os
import sys
from pathlib import Path

# Modules that a run imports late; they are imported before the fork.
import tensorboard.summary.writer.record_writer  # noqa: F401
import torch._dynamo  # noqa: F401

from fastweights.agents.learner import Learner
from fastweights.experiments.agents import run
from fastweights.host.progress import ProgressDisplay
from fastweights.launch import atari

FIRST, MIDDLE, LAST = 20, 40, 120  # updates
SIZES = ("--num-envs", "256", "--batch-size", "256", "--unroll-length", "5", "--micro-batch", "0")
STEPS = 256 * 5  # agent steps in an update; its frames take 307 kB
CASES = {"lockstep": "lockstep", "asynchronous": "asynchronous", "leaking": "asynchronous"}


class Watching(ProgressDisplay):
    """A display that records the process's memory."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.early = self.late = 0.0  # maxima, because single readings vary

    def update(self, step, row):
        super().update(step, row)
        if FIRST <= row["updates"] < MIDDLE:
            self.early = max(self.early, resident())
        elif row["updates"] >= MIDDLE:
            self.late = max(self.late, resident())
        if row["updates"] == LAST:
            print(f"grown:{sys.argv[2]} {self.late - self.early}", flush=True)


def resident() -> float:
    """Return the resident set of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def leak() -> None:
    kept, update = [], Learner.update

    def keeping(self, rollout):
        kept.append(rollout)
        return update(self, rollout)

    Learner.update = keeping


def main() -> None:
    gc.freeze()
    run.ProgressDisplay = Watching
    for case, schedule in CASES.items():
        if os.fork() == 0:
            sys.argv.append(case)
            if case == "leaking":
                leak()
            what = ("--env", "Catch", "--core", "feedforward", "--num-threads", "1")
            where = ("--savedir", sys.argv[1], "--xpid", case, "--schedule", schedule)
            sys.exit(atari.main([*what, *SIZES, *where, "--total-steps", str(LAST * STEPS)]))
    assert all(os.wait()[1] == 0 for _ in CASES)


if __name__ == "__main__":
    main()
