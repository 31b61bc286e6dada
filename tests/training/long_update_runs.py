"""Runs on Atari that are interrupted in the middle of a long update; run by test_long_runs.py.

    python tests/training/long_update_runs.py FOLDER CASE MOMENT

The update computes the whole batch at once and takes about as long as acting for its rollouts. The
run gets SIGINT after `MOMENT` of this time, counted from the start of the gradient's stage. It ends
as the command does. FOLDER/signalled gets the run's CPU seconds when the signal is sent.
"""

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import fastweights.host.stages
from fastweights.launch import atari

CASES = {"plain": ("--preset", "plain"), "one-piece": ("--micro-batch", "0")}
# Half the default's length, because other tests may use one of two cores.
SIZES = ("--env", "Qbert", "--core", "rdn", "--unroll-length", "25", "--total-steps", "1000000")


def main(folder: Path, case: str, moment: float) -> int:
    begun: dict[str, float] = {}

    def send() -> None:
        (folder / "signalled").write_text(str(time.process_time()))
        os.kill(os.getpid(), signal.SIGINT)

    @contextmanager
    def annotate(stage: str):
        first = stage not in begun
        now = begun.setdefault(stage, time.monotonic())
        if stage == "gradient" and first:
            threading.Timer(moment * (now - begun["inference"]), send).start()
        yield

    fastweights.host.stages.nullcontext = annotate
    where = ("--savedir", str(folder), "--xpid", "run")
    return atari.main([*CASES[case], *SIZES, *where])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
