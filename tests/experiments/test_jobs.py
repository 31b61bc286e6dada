"""Parallel commands: failures are recorded, the others continue, a signal ends all."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fastweights.experiments.grid import Cell, Grid, Run, rebuild
from fastweights.experiments.jobs import Job, SideBySide, names
from fastweights.host.progress import Console
from fastweights.host.stopping import Interrupted

SAYS = "import sys; print('so far'); sys.stderr.write('error: {}\\n'); print(' '); sys.exit(2)"
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
STOPPED = "import sys; print('saved'); sys.exit(143)"
WAITS = "import time; print('waiting'); time.sleep(60)"
SAVES = """
import pathlib, signal, sys, time
def save(number, frame):
    time.sleep(0.5)
    sys.exit(128 + number)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, save)
pathlib.Path({!r}).touch()
time.sleep(60)
"""


def job(name: str, code: str) -> Job:
    return Job(name, lambda: [sys.executable, "-S", "-c", code])


def test_failures_are_one_line_each_and_the_others_go_on(tmp_path, capsys):
    codes = {"a": SAYS.format("full disk"), "b": KILLED, "c": STOPPED, "d": "raise SystemExit(7)"}
    jobs = [*(job(name, code) for name, code in codes.items()), job("good", "")]
    side_by_side = SideBySide(2, tmp_path, Console())
    side_by_side.run([*jobs, Job("done", lambda: None)])
    reasons = ("full disk", "killed by SIGKILL", "it was stopped", "exit code 7")
    assert side_by_side.failures == dict(zip("abcd", reasons, strict=True))
    said = capsys.readouterr().out
    assert "failed a: full disk; running:" in said and "finished good" in said
    assert "done; running" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.out", "b.out", "c.out", "d.out"]


def test_runs_go_on_if_nobody_reads_what_is_said(tmp_path):
    """As after the end of `head`, to which a table's output was piped."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as closed:
        side_by_side = SideBySide(1, tmp_path, Console(file=closed))
        side_by_side.run([job(name, f"open({str(tmp_path / name)!r}, 'w')") for name in "ab"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert not side_by_side.failures


def test_the_output_of_an_earlier_process_stays_and_is_no_reason(tmp_path):
    """A process that a killed table has left may still be writing its output."""
    said = {"a": "going on\nhalf", "b": "error: an old one\n"}
    for name, text in said.items():
        (tmp_path / f"{name}.out").write_text(text)
    with (tmp_path / "a.out").open("a") as still_open:
        side_by_side = SideBySide(2, tmp_path, Console())
        code = SAYS.format("in use").replace("print(' ')", "print('50 %')")
        side_by_side.run([job("a", code), job("b", "raise SystemExit(7)")])
        still_open.write("the end\n")
    assert side_by_side.failures == {"a": "in use", "b": "exit code 7"}
    text = (tmp_path / "a.out").read_text()
    assert text.startswith(said["a"]) and text.endswith("error: in use\n50 %\nthe end\n")


def test_of_many_jobs_the_first_are_named():
    assert names([]) == "none" and names("abc") == "a, b, c"
    assert names(map(str, range(40))) == ", ".join(map(str, range(12))) + " and 28 more"


class Says(Run):
    """A run whose command is `code`, and which never has a result."""

    finished = begun = False
    differences = result = None

    def __init__(self, folder: Path, name: str, code: str):
        self.options, self.code = SimpleNamespace(savedir=folder, xpid=name), code

    def start(self):
        return [sys.executable, "-S", "-c", self.code]

    go_on = start


def test_a_grid_names_the_outputs_that_it_has_kept(tmp_path, capsys):
    runs = (Says(tmp_path, "bad", SAYS.format("full disk")), Says(tmp_path, "empty", "print(1)"))
    grid = Grid("two", [Cell({"seed": 1}, run) for run in runs], tmp_path)
    assert rebuild(grid, lambda failures: None, tmp_path, at_once=1) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"failed: bad: full disk (its output: {tmp_path / 'bad.out'})",
        "failed: empty: it has no result",
    ]
    assert [path.name for path in tmp_path.glob("*.out")] == ["bad.out"]


@pytest.fixture
def _as_in_a_terminal():
    """Undo `nohup`, if the tests run under it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_as_in_a_terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_every_job_and_starts_no_other(tmp_path, number, capsys):
    before, ready = signal.getsignal(number), tmp_path / "b is ready"

    def signal_soon() -> None:
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=signal_soon, daemon=True).start()
    codes = {"a": WAITS, "b": SAVES.format(str(ready)), "c": WAITS}  # b ends later than a
    jobs = [job(name, code) for name, code in codes.items()]
    with pytest.raises(Interrupted) as stopped:
        SideBySide(2, tmp_path, Console()).run(jobs)
    assert stopped.value.signal_number == number and signal.getsignal(number) is before
    said = capsys.readouterr().out
    assert "stopped a" in said and "stopped b" in said and "started c" not in said


def test_a_job_that_cannot_be_started_leaves_none_behind(tmp_path):
    side_by_side = SideBySide(2, tmp_path, Console())
    with pytest.raises(FileNotFoundError):
        side_by_side.run([job("a", WAITS), Job("b", lambda: ["/nowhere"])])
    (process,) = side_by_side._running.values()
    assert process.returncode == -signal.SIGTERM
