"""Real processes that suffer faults; run by test_faults.py.

    python tests/training/faulty_runs.py FOLDER CASE...

Every run is a child in its own process group, forked after the imports. It writes its output to
FOLDER/NAME.out and NAME.err. A full disk is imitated by a limit on the size of files. `prlimit`
changes the limit while the process runs, and the system then refuses a write half way, as on a full
disk. The script prints a line of JSON for each case.
"""

import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium
import tensorboard.summary.writer.record_writer  # noqa: F401
import torch._dynamo  # noqa: F401

import fastweights.records.log_table
from fastweights.envs.catch import Catch
from fastweights.launch import atari
from fastweights.records.log_table import read_logs

FOLDER = Path(sys.argv[1])
SMALL = ("--num-envs", "4", "--batch-size", "4", "--unroll-length", "5", "--num-threads", "1")
BIG = ("--env", "Catch", "--core", "lstm", "--core-width", "128")  # checkpoints of 1.6 MB
LITTLE = ("--env", "Catch", "--core", "feedforward")
OFTEN = ("--checkpoint-minutes", "1e-6")  # after every update
ALWAYS = 1_000_000_000
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0  # seconds
PATIENCE = 60  # seconds
BURIAL = 5  # seconds until the system has removed an ended process's children


class Run:
    """The command in a child process, which calls `prepare` first."""

    def __init__(self, name: str, *options: object, prepare: Callable[[], None] = lambda: None):
        self.output, self.errors = FOLDER / f"{name}.out", FOLDER / f"{name}.err"
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._run([*SMALL, "--savedir", str(FOLDER), *map(str, options)], prepare)

    def _run(self, arguments: list[str], prepare: Callable[[], None]) -> None:
        os.setsid()
        for path, number in ((self.output, 1), (self.errors, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        prepare()
        sys.exit(atari.main(arguments))

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self._poll() is None, self.errors.read_text()
            assert time.monotonic() < deadline, (
                f"the condition never held; {self.errors.read_text()}"
            )
            time.sleep(0.01)

    def end(self, number: int = 0) -> int:
        """Send signal `number` and return the exit code; no process of the group may be left."""
        os.kill(self.pid, number)
        deadline = time.monotonic() + PATIENCE
        while self._poll() is None:
            assert time.monotonic() < deadline, "the run does not end"
            time.sleep(0.01)
        deadline = time.monotonic() + BURIAL
        while self._has_left_some():
            assert time.monotonic() < deadline, "the run ended, but left processes behind"
            time.sleep(0.01)
        return self.code

    def limit(self, size: int = resource.RLIM_INFINITY) -> None:
        """Let no file grow beyond `size` bytes."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def _has_left_some(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code


def checkpoints(run: Path) -> list[int]:
    return sorted(int(path.stem[5:]) for path in run.glob("checkpoints/step_*.pt"))


def rows(run: Path) -> int:
    return len(read_logs(run)["step"]) if (run / "logs.csv").exists() else 0


def full_while_checkpointing() -> dict:
    """The disk is full, free again, and full at the end; then the newest checkpoint is cut."""
    path = FOLDER / "full"
    run = Run("full", *BIG, *OFTEN, "--xpid", "full", "--total-steps", ALWAYS)
    run.wait_until(lambda: len(checkpoints(path)) > 1)
    run.limit(800_000)
    run.wait_until(lambda: "warning" in run.errors.read_text())
    kept, reached = checkpoints(path), rows(path)
    run.wait_until(lambda: rows(path) > reached + 5)
    still_kept = checkpoints(path)
    run.limit()
    run.wait_until(lambda: checkpoints(path)[-1] > still_kept[-1] and len(checkpoints(path)) == 3)
    run.limit(800_000)
    reached = rows(path)
    run.wait_until(lambda: rows(path) > reached + 2)
    code, left, partials = run.end(signal.SIGTERM), checkpoints(path), list(path.rglob(".partial*"))
    newest = path / "checkpoints" / f"step_{left[-1]:012d}.pt"
    os.truncate(newest, newest.stat().st_size // 2)  # model.tar is a link to the same file
    again = Run("full-again", *BIG, *OFTEN, "--resume", path)
    again.wait_until(lambda: checkpoints(path)[-1] > left[-1])
    return {
        "kept": [kept, still_kept],
        "code": code,
        "partials": len(partials),
        "left": left,
        "resumed": again.end(signal.SIGTERM),
    }


def full_from_the_start() -> dict:
    """A checkpoint does not fit, but other files do; the run before stays `latest`."""
    codes = [Run("before", *LITTLE, "--xpid", "before", "--total-steps", 20).end()]
    for name in ("never", "never-named"):
        named = () if name == "never" else ("--xpid", name)

        def prepare() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))

        begun = Run(name, *BIG, *named, "--total-steps", ALWAYS, prepare=prepare)
        codes.append(begun.end())
    left = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
    return {"codes": codes, "left": left, "latest": str((FOLDER / "latest").readlink())}


def full_while_logging() -> dict:
    path = FOLDER / "log"
    run = Run("log", *LITTLE, "--xpid", "log", "--total-steps", ALWAYS, *OFTEN)
    run.wait_until(lambda: rows(path) > 3)
    before = rows(path)
    # Only appending is refused, because small checkpoints are written and renamed.
    run.limit((path / "logs.csv").stat().st_size + 2_000)
    code = run.end()
    again = Run("log-again", *LITTLE, "--resume", path)
    reached = rows(path)
    again.wait_until(lambda: rows(path) > reached + 3)
    return {"code": code, "before": before, "resumed": again.end(signal.SIGTERM)}


class RaisingCatch(Catch):
    """A game whose thirtieth step raises."""

    left = 30

    def step(self, actions):
        self.left -= 1
        raised = FOLDER / f"{os.environ['RUN']}.raised"
        if self.left == 0 and not raised.exists():
            raised.touch()
            raise RuntimeError("the emulator burst")
        return super().step(actions)


def raising(schedule: str) -> dict:
    path = FOLDER / schedule
    options = ("--env", "Raising-v0", "--core", "feedforward", "--schedule", schedule)

    def prepare() -> None:
        os.environ["RUN"] = schedule
        gymnasium.register("Raising-v0", vector_entry_point=RaisingCatch)

    code = Run(schedule, *options, "--xpid", schedule, "--total-steps", 400, prepare=prepare).end()
    reached = rows(path)
    again = Run(f"{schedule}-again", *options, "--resume", path, prepare=prepare)
    return {"code": code, "rows": reached, "resumed": again.end()}


def jump(seconds: float) -> None:
    """Set the clock of this process forward."""
    now = time.time
    time.time = lambda: now() + seconds


def jumping_clock() -> dict:
    """The clock goes an hour back, a day forward, an hour back; the run resumes two days ago."""
    path, often = FOLDER / "clock", ("--checkpoint-minutes", "0.0005")

    def prepare() -> None:
        log = fastweights.records.log_table.LogTable.log

        def jumping(self, row, *now):
            jump({10: -HOUR, 20: DAY, 30: -HOUR}.get(row["updates"], 0.0))
            log(self, row, *now)

        fastweights.records.log_table.LogTable.log = jumping

    run = Run("clock", *LITTLE, *often, "--xpid", "clock", "--total-steps", ALWAYS, prepare=prepare)
    run.wait_until(lambda: rows(path) > 40 and checkpoints(path))
    reached = checkpoints(path)[-1]
    run.wait_until(lambda: checkpoints(path)[-1] > reached)
    code, last = run.end(signal.SIGTERM), rows(path)
    again = Run("clock-again", *LITTLE, *often, "--resume", path, prepare=lambda: jump(-2 * DAY))
    again.wait_until(lambda: rows(path) > last + 10 and checkpoints(path)[-1] > last * 20)
    return {"code": code, "last": last, "resumed": again.end(signal.SIGTERM)}


def two_at_once() -> dict:
    path = FOLDER / "shared"
    options = (*LITTLE, "--xpid", "shared", "--total-steps", ALWAYS)
    first = Run("shared", *options, *OFTEN)
    first.wait_until(lambda: rows(path) > 3)
    meta = (path / "meta.json").read_bytes()
    codes = [Run("shared-new", *options).end(), Run("shared-resumed", "--resume", path).end()]
    reached = rows(path)
    first.wait_until(lambda: rows(path) > reached + 3)
    untouched = (path / "meta.json").read_bytes() == meta
    return {"codes": codes, "untouched": untouched, "first": first.end(signal.SIGTERM)}


def stopped_for_a_minute() -> dict:
    """Stop the whole process for a minute, in either schedule."""
    runs = {
        schedule: Run(
            f"stopped-{schedule}",
            *(*LITTLE, *OFTEN, "--schedule", schedule, "--xpid", f"stopped-{schedule}"),
            *("--total-steps", ALWAYS),
        )
        for schedule in ("lockstep", "asynchronous")
    }
    paths = {schedule: FOLDER / f"stopped-{schedule}" for schedule in runs}
    for schedule, run in runs.items():
        run.wait_until(lambda path=paths[schedule]: rows(path) > 3)
        os.kill(run.pid, signal.SIGSTOP)
    time.sleep(1)
    before = {schedule: rows(path) for schedule, path in paths.items()}
    time.sleep(MINUTE)
    after = {schedule: rows(path) for schedule, path in paths.items()}
    for schedule, run in runs.items():
        os.kill(run.pid, signal.SIGCONT)
        run.wait_until(lambda s=schedule: rows(paths[s]) > after[s] + 10)
    codes = [run.end(signal.SIGTERM) for run in runs.values()]
    return {"before": before, "after": after, "codes": codes}


CASES: dict[str, Callable[[], dict]] = {
    "start": full_from_the_start,
    "full": full_while_checkpointing,
    "log": full_while_logging,
    "lockstep": lambda: raising("lockstep"),
    "asynchronous": lambda: raising("asynchronous"),
    "clock": jumping_clock,
    "shared": two_at_once,
    "stopped": stopped_for_a_minute,
}


def main() -> None:
    gc.freeze()  # otherwise each child's exit would copy all imported objects
    for case in sys.argv[2:]:
        print(json.dumps({"case": case, **CASES[case]()}), flush=True)


if __name__ == "__main__":
    main()
