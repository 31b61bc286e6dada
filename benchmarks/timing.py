"""Time several implementations alternately, so that other load on the machine affects all."""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch

from benchmarks.arguments import check_above_zero
from benchmarks.json_file import check_folder
from benchmarks.machine import describe
from fastweights.host import UserError, compute_exactly

Run = Callable[[], object]
Name = TypeVar("Name")
Result = TypeVar("Result")
SHORTEST_SAMPLE = 0.02  # seconds; shorter calls are repeated within a sample
LONG = 20.0  # seconds; longer benchmarks report each round on stderr


def seconds_of(run: Run, repeats: int, device: str) -> float:
    """Return the seconds per call, averaged over `repeats`; a GPU is timed by CUDA events."""
    if device == "cuda":
        return _seconds_on_gpu(run, repeats)
    began = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - began) / repeats


def _seconds_on_gpu(run: Run, repeats: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / repeats


def take_turns(
    runs: Mapping[Name, Run],
    rounds: int,
    seconds: float,
    device: str,
    within: Callable[[Name], AbstractContextManager[None]] = lambda name: nullcontext(),
) -> dict[Name, list[float]]:
    """Return seconds per call of each run in every round: up to `rounds` in about `seconds`.

    All runs are warmed up; slow calls get a single round. The samples of a run are taken inside
    `within(name)`, which is not timed.
    """
    began, once = time.perf_counter(), {}
    for name, run in runs.items():
        with within(name):
            once[name] = min(seconds_of(run, 1, device) for _ in "12")
    repeats = {
        name: max(1, round(SHORTEST_SAMPLE / max(1e-9, each))) for name, each in once.items()
    }
    a_round = sum(each * (1 + repeats[name]) for name, each in once.items())
    left = seconds - (time.perf_counter() - began)
    samples: dict[Name, list[float]] = {name: [] for name in runs}
    for _ in told_rounds(max(1, min(rounds, int(left / max(1e-9, a_round)))), a_round):
        for name, run in runs.items():
            with within(name):
                run()  # the previous contender displaced this one's data in caches and heap
                samples[name].append(seconds_of(run, repeats[name], device))
    return samples


def told_rounds(rounds: int, a_round: float) -> Iterator[int]:
    """Yield the round numbers; print them on stderr if all rounds together take over `LONG`.

    `a_round`: seconds per round.
    """
    for number in range(1, rounds + 1):
        if rounds * a_round > LONG:
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        yield number


def play_rounds(
    cases: Mapping[str, Callable[[], Result]], rounds: int, tell: Callable[[Result], str]
) -> dict[str, list[Result]]:
    """Call every case in every round and return all results; print each result on stderr.

    Every other round is in reverse order, so that no case always runs first or after the same case.
    """
    found: dict[str, list[Result]] = {name: [] for name in cases}
    for number in range(1, rounds + 1):
        for name in list(cases)[:: -1 if number % 2 == 0 else 1]:
            found[name].append(cases[name]())
            print(f"round {number}: {name} {tell(found[name][-1])}", file=sys.stderr, flush=True)
    return found


def median_ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """Return the median of the rounds' ratios, in which slowdowns of a whole round cancel out."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


def logged_rate(logs: Mapping[str, Sequence[float]], warm_up: int) -> float:
    """Return agent steps/s of a logged run after its first `warm_up` updates.

    The rate is total steps over total time. The median rate of an update would be wrong, because
    rollouts, and so updates, come in bursts. A row is written when its update ends, so counting
    starts at the last warm-up row. Times are wall-clock times; a clock change makes the rate wrong.
    """
    step, clock = logs["step"], logs["_time"]
    return (step[-1] - step[warm_up - 1]) / (clock[-1] - clock[warm_up - 1])


def add_options(
    parser: argparse.ArgumentParser,
    rounds: str,
    seconds: str,
    default: float,
    devices: Sequence[str] = ("cpu", "cuda"),
) -> None:
    """Add the options of alternating benchmarks; `rounds` and `seconds` complete the help."""
    parser.add_argument(
        "--rounds", type=int, default=7, help=f"maximum number of {rounds} (default 7)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=default,
        help=f"seconds {seconds}, roughly (default {default:.0f})",
    )
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's choice)")
    parser.add_argument(
        "--device", choices=devices, default="cpu", help="device to time (default cpu)"
    )
    parser.add_argument("--json", type=Path, help="file for the machine and the rows")


def use_options(options: argparse.Namespace, *above_zero: str) -> dict[str, Any]:
    """Check the options of `add_options` and `above_zero`; set torch's threads and precision.

    Returns the description of the machine.
    """
    check_folder(options.json)
    check_above_zero(options, "rounds", "seconds", "threads", *above_zero)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    compute_exactly()
    return describe(options.device)
