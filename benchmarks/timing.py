"""Timing several ways to do the same: by turns, so that a busy moment hits all of them."""

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
from fastweights.host.devices import compute_exactly
from fastweights.host.errors import UserError

Run = Callable[[], object]
Name = TypeVar("Name")
Result = TypeVar("Result")
SHORTEST_SAMPLE = 0.02  # seconds; shorter calls are repeated within a sample
LONG = 20.0  # seconds; whoever waits longer is told of each round


def seconds_of(run: Run, repeats: int, device: str) -> float:
    """Of one call, a mean over `repeats`; on a GPU by its own clock, between two events."""
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
    """Seconds a call of each, in every round: `rounds` of them, or fewer in about `seconds`.

    Slow calls get a single round; all are warm. A name's samples are taken inside `within(name)`,
    which is not timed.
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
                run()  # the one before it left its own memory in the caches and the heap
                samples[name].append(seconds_of(run, repeats[name], device))
    return samples


def told_rounds(rounds: int, a_round: float) -> Iterator[int]:
    """Their numbers, on stderr too where all of them, each of `a_round` seconds, take long."""
    for number in range(1, rounds + 1):
        if rounds * a_round > LONG:
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        yield number


def play_rounds(
    cases: Mapping[str, Callable[[], Result]], rounds: int, tell: Callable[[Result], str]
) -> dict[str, list[Result]]:
    """What every case came to in every round; one takes so long that each is told on stderr.

    Every other round goes backwards: no case always follows the same one, or comes first.
    """
    found: dict[str, list[Result]] = {name: [] for name in cases}
    for number in range(1, rounds + 1):
        for name in list(cases)[:: -1 if number % 2 == 0 else 1]:
            found[name].append(cases[name]())
            print(f"round {number}: {name} {tell(found[name][-1])}", file=sys.stderr, flush=True)
    return found


def median_ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """The median of the rounds' ratios: what slows a whole round down is in both of its samples."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


def logged_rate(logs: Mapping[str, Sequence[float]], warm_up: int) -> float:
    """Agent steps/s of a run after its first `warm_up` updates, from its log: whole over whole.

    Updates come in bursts where rollouts do, and the median update's rate is none of the run's. A
    row is written as its update ends: the last of the warm-up's is where counting begins. Its time
    is the wall clock's, which nobody should set meanwhile.
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
    """What is asked of any benchmark that takes turns; `rounds` and `seconds` say of what."""
    parser.add_argument("--rounds", type=int, default=7, help=f"{rounds}, at most: 7")
    parser.add_argument(
        "--seconds", type=float, default=default, help=f"{seconds}, about: {default:.0f}"
    )
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's own)")
    parser.add_argument("--device", choices=devices, default="cpu", help="default cpu")
    parser.add_argument("--json", type=Path, help="write machine and rows to this file")


def use_options(options: argparse.Namespace, *above_zero: str) -> dict[str, Any]:
    """Checks them, and those named, has torch compute as training does, on the threads asked for;
    returns the machine's description.
    """
    check_folder(options.json)
    check_above_zero(options, "rounds", "seconds", "threads", *above_zero)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    compute_exactly()
    return describe(options.device)
