"""Timing several ways to do the same: by turns, so that a busy moment hits all of them."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from benchmarks.arguments import check_above_zero
from benchmarks.json_file import check_folder
from benchmarks.machine import describe
from launch.failures import UserError

Run = Callable[[], object]
SHORTEST_SAMPLE = 0.02  # seconds; shorter calls are repeated within a sample


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
    runs: Mapping[str, Run],
    rounds: int,
    seconds: float,
    device: str,
    within: Callable[[str], AbstractContextManager[None]] = lambda name: nullcontext(),
) -> dict[str, list[float]]:
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
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(max(1, min(rounds, int(left / max(1e-9, a_round))))):
        for name, run in runs.items():
            with within(name):
                run()  # the one before it left its own memory in the caches and the heap
                samples[name].append(seconds_of(run, repeats[name], device))
    return samples


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
    parser.add_argument("--device", choices=devices, default="cpu")
    parser.add_argument("--json", type=Path, help="write machine and rows to this file")


def use_options(options: argparse.Namespace, *above_zero: str) -> dict[str, Any]:
    """Checks them, and those named, sets torch's threads; returns the machine's description."""
    check_folder(options.json)
    check_above_zero(options, "rounds", "seconds", "threads", *above_zero)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    return describe(options.device)
