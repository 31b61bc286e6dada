"""The run that `soak.py` tests, and the faults that it causes."""

import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from fastweights.host import EXIT_CODE
from fastweights.records import CheckpointError, CheckpointFolder, read_logs, read_meta

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = 8
SIZES = ("--num-envs", str(ENVIRONMENTS), "--batch-size", str(ENVIRONMENTS))
SIZES = (*SIZES, "--unroll-length", "10")
SIZES = (*SIZES, "--total-steps", "1000000000", "--checkpoint-minutes", "0.05")
RESTARTS = "1000"  # of torchrun, within one start of the command
EXPECTED = {0, EXIT_CODE, 128 + signal.SIGINT, 128 + signal.SIGTERM}
EXPECTED |= {-signal.SIGINT, -signal.SIGKILL}
LAUNCHED = {1}  # exit code of torchrun and of Ray when they give up
# Expected exceptions in tracebacks: of an interrupted start, and of torchrun itself.
EXPLAINED = ("KeyboardInterrupt", "torch.distributed.")
WARM = 20.0  # seconds until a process's memory stops growing
HEADER = r"Traceback \(most|Exception ignored in"  # start of the header before an exception
MARK = "FASTWEIGHTS_SOAK"  # environment variable set in all processes of a run
PATIENCE = 10.0  # seconds for killed processes to disappear


class Reading(NamedTuple):
    """The resources of one process at a point in time."""

    when: float  # in seconds, monotonic
    memory: int  # resident, in pages
    files: int


class SoakRun:
    """A run folder in `folder`, and the process group that trains in it."""

    def __init__(self, folder: Path, env: str, learners: int, engine: str):
        self.folder, self.starts = folder / "soak", 0
        self._out = folder / "out"
        stem = ("--stem", "shallow") if env not in ("Catch", "TMaze") else ()
        program = [str(ROOT / "launch" / "atari.py"), "--env", env, "--core", "rdn", *SIZES, *stem]
        where = ["--savedir", str(folder), "--xpid", "soak", "--auto-resume", "--num-threads", "1"]
        started_by = [sys.executable]
        if learners > 1:
            started_by += ["-m", "torch.distributed.run", "--standalone", "--max-restarts"]
            started_by += [RESTARTS, "--nproc-per-node", str(learners)]
        where += ["--engine", "ray", "--num-actors", "2"] if engine == "ray" else []
        self._expected = EXPECTED | (LAUNCHED if learners > 1 or engine == "ray" else set())
        self._command = [*started_by, *program, *where]
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: list[int] = []
        self._readings: dict[int, list[Reading]] = {}

    def start(self) -> None:
        """Start the command; `--auto-resume` continues the run."""
        with self._out.open("wb") as out:
            self._process = subprocess.Popen(
                self._command,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ
                | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", MARK: str(self.folder)},
            )
        self._groups.append(self._process.pid)
        self.starts += 1

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ended_badly(self, faults: int) -> bool:
        """Return whether none of the faults so far explains the exit code of the last start."""
        if self._process is None:
            return False
        unexplained = self._process.returncode == EXIT_CODE and not faults
        return unexplained or self._process.returncode not in self._expected

    def last_words(self) -> str:
        """Return the exit code and the last error or, without one, the last line printed."""
        lines = self._said().strip().splitlines() or ["nothing was printed"]
        errors = [line for line in lines if line.startswith("error: ")]
        return f"{self._process.returncode}: {(errors or lines)[-1]}"

    def tracebacks(self) -> list[str]:
        """Return one line per exception that the last start printed and no fault explains.

        If two processes print at once, two headers may be adjacent; a header is not an exception.
        """
        traceback = rf"^(?:{HEADER}).*\n(?:[ \t].*\n)*(?=(.*))"
        found = re.findall(traceback, self._said(), re.MULTILINE)
        lines = [line for line in found if not re.match(HEADER, line)]
        return [line for line in lines if not line.startswith(EXPLAINED)]

    def _said(self) -> str:
        return self._out.read_text(errors="replace") if self._out.exists() else ""

    def processes(self) -> list[int]:
        """Return the run's processes, starting with the first one."""
        if not self.is_alive():
            return []
        found, waiting = [], [self._process.pid]
        while waiting:
            parent = waiting.pop(0)
            found.append(parent)
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
                waiting += [int(child) for child in children.split()]
        return found

    def step(self) -> int:
        """Return the agent steps in the log."""
        try:
            return max(read_logs(self.folder)["step"], default=0)
        except (OSError, ValueError, KeyError):
            return 0

    def resumes(self) -> int:
        """Return how often learners resumed the run, restarted by the benchmark or by torchrun."""
        return len(read_meta(self.folder).get("resumed", ()))

    def actor_restarts(self) -> int:
        """Return how many of Ray's actors were replaced; each start logs from 0."""
        logged = read_logs(self.folder).get("actor_restarts", ())
        counts = (0, *(count for count in logged if count is not None))
        return sum(new - old if new >= old else new for old, new in pairwise(counts))

    def saved_step(self) -> int | None:
        """Return the agent steps of the newest checkpoint that loads."""
        try:
            return CheckpointFolder(self.folder).latest().payload["step"]
        except CheckpointError:
            return None

    def checkpoints(self) -> list[Path]:
        """Return the checkpoint files, oldest first."""
        return sorted((self.folder / "checkpoints").glob("step_*.pt"))

    def signal_all(self, number: int) -> None:
        for process in self.processes():
            _send(process, number)

    def end(self, patience: float = 60.0) -> list[int]:
        """Interrupt the run and wait; return the processes killed after `patience` seconds."""
        if self.is_alive():
            _send(self._process.pid, signal.SIGINT)
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                return self.kill_left_behind()
        return []

    def kill_left_behind(self) -> list[int]:
        """Kill all processes that any start left behind, stopped ones too; return their IDs.

        The search repeats, because torchrun replaces killed processes, until two in a row find
        none: after `setsid` and before `exec`, a process has no readable environment.
        """
        killed: set[int] = set()
        deadline, empty = time.monotonic() + PATIENCE, 0
        while empty < 2 and time.monotonic() < deadline:
            left = self.left_behind()
            for process in left:
                _send(process, signal.SIGCONT)
                _send(process, signal.SIGKILL)
            killed.update(left)
            empty = 0 if left else empty + 1
            time.sleep(0.05)
        self.is_alive()  # reaps the process
        return sorted(killed)

    def left_behind(self) -> list[int]:
        """Return the live processes of any start, found by their session or by `MARK`."""
        groups, mark = set(self._groups), f"{MARK}={self.folder}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                ours = int(words[3]) in groups or mark in (entry / "environ").read_bytes()
                if ours and words[0] != "Z":  # field 3: session
                    found.append(int(entry.name))
        return found

    def sample(self) -> None:
        """Record the memory and open files of every process."""
        for process in self.processes():
            with contextlib.suppress(OSError, IndexError):
                memory = int(Path(f"/proc/{process}/statm").read_text().split()[1])
                files = len(list(Path(f"/proc/{process}/fd").iterdir()))
                if memory:  # zero: ended, but not yet reaped
                    reading = Reading(time.monotonic(), memory, files)
                    self._readings.setdefault(process, []).append(reading)

    def growth(self) -> tuple[float, int] | None:
        """Return the largest ratio of last to first memory, and the largest growth of open files.

        The first reading is the first after the warm-up. None if no process lived long enough.
        """
        grown = []
        for readings in self._readings.values():
            warm = [one for one in readings if one.when > readings[0].when + WARM]
            if warm and warm[-1].when > warm[0].when + WARM:
                first, last = warm[0], warm[-1]
                grown.append((last.memory / first.memory, last.files - first.files))
        if not grown:
            return None
        memory, files = zip(*grown, strict=True)
        return max(memory), max(files)


def _send(process: int, number: int) -> None:
    """Send a signal; do nothing if the process has ended or belongs to another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _kill(run: SoakRun, draw: random.Random) -> bool:
    victims = run.processes()
    if victims:
        _send(draw.choice(victims), signal.SIGKILL)
    return bool(victims)


def _stop(run: SoakRun, draw: random.Random) -> bool:
    victims = run.processes()
    if not victims:
        return False
    victim = draw.choice(victims)
    try:
        _send(victim, signal.SIGSTOP)
        time.sleep(draw.uniform(1.0, 8.0))
    finally:
        _send(victim, signal.SIGCONT)
    return True


def _interrupt(run: SoakRun, draw: random.Random) -> bool:
    run.signal_all(signal.SIGINT)
    return True


def _damage(run: SoakRun, draw: random.Random) -> bool:
    if len(run.checkpoints()) < 2:
        return False
    run.signal_all(signal.SIGKILL)
    time.sleep(1.0)
    newest = run.checkpoints()[-1]
    os.truncate(newest, newest.stat().st_size // 2)
    return True


def _full(run: SoakRun, draw: random.Random) -> bool:
    victims = run.processes()
    for victim in victims:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            resource.prlimit(victim, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    time.sleep(draw.uniform(1.0, 8.0))
    for victim in victims:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(victim, resource.RLIMIT_FSIZE, unlimited)
    return bool(victims)


# Each function causes a fault and returns whether it could.
FAULTS: dict[str, Callable[[SoakRun, random.Random], bool]] = {
    "kill": _kill,
    "stop": _stop,
    "interrupt": _interrupt,
    "damage": _damage,
    "full": _full,
}
