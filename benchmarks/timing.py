"""Timing several ways to do the same: by turns, so that a busy moment hits all of them."""

import time
from collections.abc import Callable, Mapping

import torch

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
    runs: Mapping[str, Run], rounds: int, seconds: float, device: str
) -> dict[str, list[float]]:
    """Seconds a call of each, in every round: `rounds` of them, or fewer in about `seconds`.

    Slow calls get a single round; all are warm.
    """
    began = time.perf_counter()
    once = {name: min(seconds_of(run, 1, device) for _ in "12") for name, run in runs.items()}
    repeats = {
        name: max(1, round(SHORTEST_SAMPLE / max(1e-9, each))) for name, each in once.items()
    }
    a_round = sum(each * (1 + repeats[name]) for name, each in once.items())
    left = seconds - (time.perf_counter() - began)
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(max(1, min(rounds, int(left / max(1e-9, a_round))))):
        for name, run in runs.items():
            run()  # the one before it left its own memory in the caches and the heap
            samples[name].append(seconds_of(run, repeats[name], device))
    return samples
