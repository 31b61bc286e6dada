"""Tests that need runs of the real size: interrupting a long update, and peak memory."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from long_update_runs import CASES

from fastweights.records.checkpoints import load_checkpoint
from fastweights.records.log_table import read_logs

pytestmark = pytest.mark.faults
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
UPDATE = 32 * 50  # agent steps of the default preset
MOST = 1.5e9  # bytes
LONGEST = 900.0  # limit in seconds for a run here


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start a program in a process group with all cores."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    begun = []

    def start_one(*command: object) -> subprocess.Popen:
        said = (tmp_path / "said").open("w")
        run = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=ROOT,
            env=environment | {"PYTHONPATH": str(ROOT)},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        begun.append(run)
        return run

    yield start_one
    for run in begun:
        outlived(run.pid)


def outlived(group: int) -> bool:
    """Kill a process group; return whether it had a process left."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def cpu_seconds_of_children() -> float:
    """Return what the processes that have been waited for took; other programs do not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("moment", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("case", CASES)
def test_ctrl_c_in_an_update_of_the_whole_batch_gives_it_up_at_once(case, moment, start, tmp_path):
    run = start(HERE / "long_update_runs.py", tmp_path, case, moment)
    before = cpu_seconds_of_children()
    code = run.wait(LONGEST)
    used = cpu_seconds_of_children() - before
    said = (tmp_path / "said").read_text()
    assert not outlived(run.pid)
    assert code == 130, said
    assert used - float((tmp_path / "signalled").read_text()) < 5
    assert "Traceback" not in said and f"--resume {tmp_path / 'run'}" in said
    assert load_checkpoint(tmp_path / "run" / "model.tar")["step"] == 0
    assert read_logs(tmp_path / "run")["step"] == []


def test_the_default_run_s_memory_is_bounded(start, tmp_path):
    what = ("--env", "Qbert", "--core", "rdn", "--precision", "float32", "--device", "cpu")
    where = ("--savedir", tmp_path, "--xpid", "run", "--total-steps", 3 * UPDATE)
    run = start(ROOT / "launch/atari.py", *what, *where)
    _, status, used = os.wait4(run.pid, 0)  # the largest of this process and its ended children
    assert os.waitstatus_to_exitcode(status) == 0, (tmp_path / "said").read_text()
    assert len(read_logs(tmp_path / "run")["step"]) == 3
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert 0.2e9 < peak <= MOST
