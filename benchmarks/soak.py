# ruff: noqa: E402 (the import path is put right before the imports)
"""Test whether a training run survives killed processes, damaged files and full disks.

    python benchmarks/soak.py --minutes 10
    python benchmarks/soak.py --minutes 60 --learners 2 --json soak.json
    python benchmarks/soak.py --engine ray --faults kill stop

A small agent trains in one run folder, with --auto-resume, and the command is restarted whenever it
ends. At random intervals of some seconds, the benchmark causes one of these faults:

- kill: kill one process of the run (SIGKILL).
- stop: suspend one process for some seconds (SIGSTOP).
- interrupt: interrupt all processes (SIGINT).
- damage: kill all processes and truncate the newest checkpoint to half its size.
- full: for some seconds, no file may grow.

After each fault, the run must continue by itself. In the end, the benchmark stops the run and
checks that the log has every step exactly once, that no process is left, and that neither memory
nor the number of open files grew. It exits with code 1 if a check fails. Linux only.
"""

import argparse
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import check_above_zero, check_game
from benchmarks.json_file import check_folder, write_json
from benchmarks.machine import describe
from benchmarks.soak_run import ENVIRONMENTS, FAULTS, SoakRun
from fastweights.host import UserError, one_line_errors
from fastweights.launch.cli.parser import Parser
from fastweights.records import read_logs

UPDATE = ENVIRONMENTS * 10  # agent steps in an update
RECOVERY = 120.0  # seconds within which the run must continue after the last fault
GROWN = 1.2  # largest acceptable ratio of a process's memory to its memory after the warm-up


@dataclass
class Findings:
    """The results of a soak test."""

    seconds: float = 0.0
    agent_steps: int = 0
    starts: int = 0  # of the command
    resumes: int = 0  # of the run, by a new start of the command or by torchrun
    actor_restarts: int = 0  # replacements of Ray's actors
    faults: dict[str, int] = field(default_factory=dict)
    steps_redone: int = 0  # agent steps repeated because a process was lost
    memory_growth: float | None = None  # last over first resident memory; maximum over processes
    files_growth: int | None = None  # last minus first open files; maximum over processes
    complaints: list[str] = field(default_factory=list)


def soak(
    run: SoakRun, minutes: float, faults: list[str], pause: float, draw: random.Random
) -> Findings:
    """Cause a fault about every `pause` seconds for `minutes`, then check the run."""
    found, begin = Findings(faults=dict.fromkeys(faults, 0)), time.monotonic()
    next_fault, newest = begin + 2 * pause, 0
    while time.monotonic() - begin < 60 * minutes:
        if not _keep_going(run, found):
            break
        step = run.step()
        found.steps_redone += max(0, newest - step)
        newest = step
        run.sample()
        if time.monotonic() > next_fault:
            name = draw.choice(faults)
            if FAULTS[name](run, draw):
                found.faults[name] += 1
                print(
                    f"{time.monotonic() - begin:6.0f} s, {step:,} agent steps: {name}",
                    file=sys.stderr,
                )
            next_fault = time.monotonic() + draw.uniform(0.5, 1.5) * pause
        time.sleep(0.2)
    _recover(run, found)
    if left := run.end():
        found.complaints.append(f"an interrupt did not end the run; killed {left}")
    found.seconds, found.starts = time.monotonic() - begin, run.starts
    _look(run, found)
    return found


def _keep_going(run: SoakRun, found: Findings) -> bool:
    """Restart the command if it has ended.

    Returns False and adds a complaint if no fault explains why it ended.
    """
    if run.is_alive():
        return True
    if run.ended_badly(faults=sum(found.faults.values())):
        _report_end(run, found)
        return False
    _read_output(run, found)
    run.start()
    return True


def _report_end(run: SoakRun, found: Findings) -> None:
    ended = f"start {run.starts} ended with {run.last_words()}"
    if ended not in found.complaints:
        found.complaints.append(ended)


def _read_output(run: SoakRun, found: Findings) -> None:
    found.complaints += [f"start {run.starts} printed {line}" for line in run.tracebacks()]


def _recover(run: SoakRun, found: Findings) -> None:
    """Wait, without further faults, until the run passes its newest step."""
    newest, begin = run.step(), time.monotonic()
    while not found.complaints and run.step() <= newest:
        if time.monotonic() - begin > RECOVERY:
            found.complaints.append(
                f"the run did not pass step {newest} within {RECOVERY:.0f} s without faults"
            )
        elif _keep_going(run, found):
            time.sleep(0.2)


def _look(run: SoakRun, found: Findings) -> None:
    _read_output(run, found)
    if run.step():
        _read_folder(run, found)
    else:  # there may be no run folder
        found.complaints.append("no step was logged")
        _report_end(run, found)
    if left := run.left_behind():
        found.complaints.append(f"{len(left)} processes outlived the run: {left}")
    if growth := run.growth():
        found.memory_growth, found.files_growth = growth
        if found.memory_growth > GROWN:
            found.complaints.append(
                f"memory grew to {found.memory_growth:.2f} times its size after warm-up"
            )
        if found.files_growth > 8:
            found.complaints.append(
                f"a process has {found.files_growth} more open files than after its warm-up"
            )


def _read_folder(run: SoakRun, found: Findings) -> None:
    found.resumes, found.actor_restarts = run.resumes(), run.actor_restarts()
    steps = read_logs(run.folder)["step"]
    found.agent_steps = steps[-1] if steps else 0
    if steps != list(range(UPDATE, found.agent_steps + 1, UPDATE)):
        found.complaints.append("the log does not contain every step exactly once")
    if run.saved_step() != found.agent_steps:
        found.complaints.append(
            f"the last checkpoint is at step {run.saved_step()}, the log at {found.agent_steps}"
        )


@one_line_errors
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parse(arguments)
    check_above_zero(options, "minutes", "pause", "learners")
    if ENVIRONMENTS % options.learners:
        raise UserError(f"--learners must divide {ENVIRONMENTS}, the number of environments")
    check_game(options.env)
    check_folder(options.json)
    if not Path("/proc/self/task").exists():
        raise UserError("this benchmark needs Linux: it finds processes in /proc")
    draw = random.Random(options.seed)
    machine = describe()
    with tempfile.TemporaryDirectory() as folder:
        run = SoakRun(Path(folder), options.env, options.learners, options.engine)
        try:
            found = soak(run, options.minutes, options.faults, options.pause, draw)
        finally:
            run.kill_left_behind()
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    write_json(options.json, {"machine": machine, "options": settings, **asdict(found)})
    Console().print(_table(found, settings))
    return bool(found.complaints)


def _table(found: Findings, settings: dict[str, Any]) -> Table:
    what = f"{settings['env']}, {settings['learners']} learners, engine {settings['engine']}"
    table = Table("", "", title=f"soak: {what}")
    rows = {
        "minutes": f"{found.seconds / 60:.1f}",
        "agent steps": f"{found.agent_steps:,}",
        "starts of the command": found.starts,
        "resumes, including torchrun's": found.resumes,
        "restarts of Ray's actors": found.actor_restarts,
        "faults": ", ".join(f"{name} {count}" for name, count in found.faults.items()),
        "agent steps learned again": f"{found.steps_redone:,}",
        "memory, last over first": f"{found.memory_growth:.3f}" if found.memory_growth else "",
        "open files, last minus first": found.files_growth,
        "complaints": "; ".join(found.complaints) or "none",
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="length of the test in minutes (default 10)"
    )
    parser.add_argument("--env", default="Catch", help="game (default Catch; Atari is slower)")
    parser.add_argument(
        "--learners",
        type=int,
        default=1,
        help="number of learners, started by torchrun if above 1 (default 1)",
    )
    parser.add_argument(
        "--engine",
        choices=["local", "ray"],
        default="local",
        help="where actors run (default local)",
    )
    parser.add_argument(
        "--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS),
        help="faults to cause (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--pause", type=float, default=15.0, help="mean time between faults in seconds (default 15)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the faults' times and kinds (default 1)"
    )
    parser.add_argument("--json", type=Path, help="file for the machine and the results")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
