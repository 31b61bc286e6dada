"""Ctrl-C at every stage, a hanging environment, and memory over time, in real processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from forks import Program
from stopping_runs import CASES

from fastweights.host.stages import NEVER_STOPPED
from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs

pytestmark = pytest.mark.accidents
HERE = Path(__file__).parent
STOPPED = [f"{case}-stopped" for case, what in CASES if what == "stopped"]
BROKEN = [f"{case}-broken" for case, what in CASES if what == "broken"]
GROWTH = 8  # MiB: large pages are 2, and threads hold some. Keeping every rollout would grow by 25.


def output_of(script: str, *arguments: object) -> list[str]:
    done = Program(HERE / script, *arguments).end()
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> tuple[Path, dict[str, dict]]:
    """Return the folder of the runs and what is known of each process."""
    folder = tmp_path_factory.mktemp("runs")
    ends = map(json.loads, output_of("stopping_runs.py", folder))
    return folder, {end["case"]: end for end in ends}


@pytest.mark.parametrize("case", STOPPED)
def test_ctrl_c_at_any_stage_ends_the_run_soon_and_saves_it(case, stopped):
    folder, ends = stopped
    end = ends[case]
    said = (folder / f"{case}.out").read_text()
    assert end["code"] == 130, said
    # It was signalled amid a stage; another may have begun before the signal arrived.
    assert len([stage for stage in end["stages"] if stage not in NEVER_STOPPED]) <= 1
    assert not end["left"]
    assert "Traceback" not in said and f"--resume {folder / case}" in said
    last_row = max(read_logs(folder / case)["step"], default=0)
    assert load_checkpoint(folder / case / "model.tar")["step"] == last_row
    assert ("is stuck in emulation" in said) == (case == "asynchronous-stuck-stopped")


@pytest.mark.parametrize("case", BROKEN)
def test_an_accident_in_any_thread_ends_the_run_and_spares_what_it_had_learned(case, stopped):
    folder, ends = stopped
    said = (folder / f"{case}.out").read_text()
    assert ends[case]["code"] == 1 and "ZeroDivisionError: an accident" in said
    assert not ends[case]["left"] and "left behind" not in said
    last_row = max(read_logs(folder / case)["step"])
    assert load_checkpoint(folder / case / "model.tar")["step"] == last_row


START_INTERRUPTED = """
import os, signal, sys, threading
from fastweights.host import run_command
from fastweights.training.schedules import asynchronous

class Interrupted(asynchronous.Asynchronous):
    def __enter__(self):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        return super().__enter__()

asynchronous._PATIENCE = 0.0
asynchronous.Asynchronous = Interrupted
sys.exit(run_command("atari", sys.argv[1:]))
"""


def test_emulators_that_are_still_starting_do_not_abort_the_process(tmp_path):
    """They return to Python from C++ when Python is about to end."""
    game = ["--env", "Pong", "--stem", "shallow", "--core", "feedforward", "--num-threads", "1"]
    streams = ["--schedule", "asynchronous", "--num-envs", "8", "--batch-size", "8"]
    where = ["--savedir", str(tmp_path), "--xpid", "run", "--env-groups", "1"]
    done = subprocess.run(
        [sys.executable, "-c", START_INTERRUPTED, *game, *streams, *where],
        capture_output=True,
        text=True,
    )
    assert "actor 0 is stuck in its start; left behind" in done.stderr
    assert done.returncode == 130, done.stderr


@pytest.mark.faults
@pytest.mark.parametrize("case", [*STOPPED, *BROKEN])
def test_an_interrupted_run_ends_within_five_seconds(case, stopped):
    assert stopped[1][case]["seconds"] < 5


@pytest.mark.faults
def test_memory_does_not_grow_and_a_leak_would_show(tmp_path):
    lines = output_of("growing_runs.py", tmp_path)
    growth = dict(line.split() for line in lines if line.startswith("grown:"))
    growth = {case.removeprefix("grown:"): float(mebibytes) for case, mebibytes in growth.items()}
    assert growth.keys() == {"lockstep", "asynchronous", "leaking"}
    assert growth["lockstep"] < GROWTH
    assert growth["asynchronous"] < GROWTH
    assert growth["leaking"] > 2 * GROWTH
