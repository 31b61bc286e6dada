"""Commands in parallel, each in a separate process.

Signals that end this process end the commands, too. After `kill -9` of this process they go on.
"""

import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from types import FrameType
from typing import NamedTuple

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fastweights.host import EXIT_CODE, Console, Interrupted, one_line, stop_signals

STOPPED = "stopped; its runs are saved, and the same command resumes them"
_POLL = 0.1  # seconds
_NAMED = 12  # maximum number of names per line
_STOPPED = {128 + number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


class Job(NamedTuple):
    """A command, computed when its turn comes; None if nothing is left to do by then."""

    name: str
    command: Callable[[], Sequence[str] | None]


class SideBySide:
    """Runs jobs, `at_once` at a time, and shows which have ended and which are running.

    A job's output is appended to `folder`/NAME.out, which is kept only if the job fails. A process
    of the same job that an earlier, killed runner left behind may still be writing this file.
    """

    def __init__(self, at_once: int, folder: Path, console: Console) -> None:
        self.failures: dict[str, str] = {}  # reason, by the name of the job
        self._at_once, self._folder = at_once, folder
        self._running: dict[str, Popen] = {}
        self._written: dict[str, int] = {}  # bytes of a job's output before it started
        self._signals: list[int] = []  # received
        self._passed_on = 0  # number of them
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._shown: dict[str, TaskID] = {}
        self._progress = Progress(*columns, console=console, transient=True)

    def run(self, jobs: Sequence[Job]) -> None:
        """Run all jobs, even after a failure. Call it from the main thread.

        SIGINT, SIGTERM and SIGHUP are passed on to all running jobs, and no more jobs start.

        Raises:
            Interrupted: a signal was received, and all jobs have ended.
        """
        waiting = deque(jobs)
        with self._noting_signals(), self._progress, self._nothing_left_behind():
            everything = self._progress.add_task("", total=len(jobs))
            while self._running or (waiting and not self._signals):
                while waiting and len(self._running) < self._at_once and not self._signals:
                    self._start(waiting.popleft())
                self._pass_signals_on()
                self._collect([job.name for job in waiting])
                ended = len(jobs) - len(waiting) - len(self._running)
                shown = f"{ended} of {len(jobs)} runs"
                self._progress.update(everything, completed=ended, description=shown)
                time.sleep(_POLL)
        if self._signals:
            raise Interrupted(self._signals[0])

    @contextlib.contextmanager
    def _noting_signals(self) -> Iterator[None]:
        def note(number: int, frame: FrameType | None) -> None:
            self._signals.append(number)

        before = {number: signal.signal(number, note) for number in stop_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def _nothing_left_behind(self) -> Iterator[None]:
        try:
            yield
        finally:
            for process in self._running.values():
                process.terminate()
            for process in self._running.values():
                process.wait()

    def _start(self, job: Job) -> None:
        command = job.command()
        if command is None:
            return
        # Unbuffered, so that lines stay in order, with the error last.
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        with self._said(job.name).open("ab") as out:
            self._written[job.name] = out.tell()
            streams = {"stdin": DEVNULL, "stdout": out, "stderr": STDOUT}
            self._running[job.name] = Popen(command, env=environment, **streams)
        self._shown[job.name] = self._progress.add_task(f"  {job.name}", total=None)
        self._say(f"started {job.name}")

    def _pass_signals_on(self) -> None:
        while self._passed_on < len(self._signals):
            for process in self._running.values():
                process.send_signal(self._signals[self._passed_on])
            self._passed_on += 1

    def _collect(self, waiting: Sequence[str]) -> None:
        for name, process in list(self._running.items()):
            if process.poll() is None:
                continue
            del self._running[name]
            self._progress.remove_task(self._shown.pop(name))
            line = self._ended(name, process.returncode)
            self._say(f"{line}; running: {names(self._running)}; left: {names(waiting)}")

    def _ended(self, name: str, code: int) -> str:
        said = self._said(name)
        if code and not self._passed_on:
            self.failures[name] = _why(code, said.read_bytes()[self._written[name] :])
            return f"failed {name}: {self.failures[name]}"
        said.unlink(missing_ok=True)
        return f"{'stopped' if code else 'finished'} {name}"

    def _said(self, name: str) -> Path:
        return self._folder / f"{name}.out"

    def _say(self, line: str) -> None:
        self._progress.console.say(line)


def report(failures: Mapping[str, str], folder: Path) -> int:
    """Print one line per failure, by job name; return the exit code."""
    for name, reason in failures.items():
        said = folder / f"{name}.out"  # kept only if the command itself failed
        where = f" (its output: {said})" if said.exists() else ""
        print(f"failed: {name}: {reason}{where}", file=sys.stderr)
    return EXIT_CODE if failures else 0


def names(jobs: Iterable[str]) -> str:
    """Return `a, b, c`, only the first few of many, or `none`."""
    jobs = list(jobs)
    left = len(jobs) - _NAMED
    return ", ".join(jobs[:_NAMED]) + (f" and {left} more" if left > 0 else "") or "none"


def _why(code: int, said: bytes) -> str:
    """Return one line: the error in a command's output, its last line, or the killing signal."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    if code in _STOPPED:
        return "it was stopped"
    lines = said.decode(errors="replace").replace("\r", "\n").split("\n")
    said_last = [line for line in reversed(lines) if line.strip()] or [f"exit code {code}"]
    # An earlier process of the job may have written lines after the error.
    last = next((line for line in said_last if line.startswith("error: ")), said_last[0])
    return one_line(last).removeprefix("error: ")
