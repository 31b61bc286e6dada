"""The time of a thread's stages: seconds and counts.

All schedules always time every stage, at a cost of two microseconds per stage. At the start of a
stage a thread can also be asked to stop, except in the stages of an update whose gradient has been
computed. `training/layer_checks.py` adds such checks within long passes of the network.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

STAGES = {
    "emulation": "the environments' step",
    "transfer": "frames or words to the device; assembling rollouts and sending them on",
    "inference": "the network's step, sampling, and the copy of the actions to the CPU",
    "wait_for_learner": "acting is as far ahead of learning as allowed",
    "wait_for_rollouts": "learning has caught up with acting",
    "gradient": "forward and backward passes; on a GPU, their launch",
    "exchange": "exchange between learners: sums of gradients and reports, including waits",
    "optimise": "clipping, RMSprop or Adam, reading the losses; on a GPU, also the queued work",
    "publish": "copying the weights for acting",
    "test": "test games with --evaluate-every; for sequences, the held-out split",
    "log": "logs.csv, TensorBoard and the display",
    "save": "checkpoints",
}
# Once gradients are summed, every learner must make the update. Before anything stops, the update
# is published and logged, and any checkpoint is completed.
NEVER_STOPPED = {"optimise", "publish", "log", "save"}


class Total(NamedTuple):
    """The total of a stage."""

    seconds: float
    calls: int

    def since(self, before: "Total") -> "Total":
        """Return the increase since the stage's total was `before`."""
        return Total(self.seconds - before.seconds, self.calls - before.calls)


class Stages:
    """The stages of one thread, called `name`: `with stages("emulation"): ...`.

    Stages do not nest, so their times add up to the thread's time. `checks` raise when the thread
    should stop; more can be added. Only one thread enters stages; any thread may read `totals` and
    `going_on`. `annotate(stage)` is also entered, for a profiler.
    """

    def __init__(self, name: str, *checks: Callable[[], None]) -> None:
        self.name = name
        self.annotate: Callable[[str], AbstractContextManager[object]] = nullcontext
        self.current: str | None = None
        self._entered = 0.0  # start time of `current`
        self.checks = [*checks]
        self._lock = threading.Lock()
        self._totals = dict.fromkeys(STAGES, Total(0.0, 0))

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time the block as part of `stage`, one of `STAGES`."""
        if stage not in NEVER_STOPPED:
            self.check()
        with self._lock:
            self.current, self._entered = stage, time.perf_counter()
        try:
            with self.annotate(stage):
                yield
        finally:
            with self._lock:
                self._totals[stage] = self._so_far()
                self.current = None

    def check(self) -> None:
        """Call the checks, which raise when the thread should stop."""
        for check in self.checks:
            check()

    @property
    def going_on(self) -> tuple[str | None, float]:
        """Return the thread's current stage, and its seconds so far."""
        with self._lock:
            return self.current, time.perf_counter() - self._entered

    def add(self, elsewhere: Mapping[str, tuple[float, int]]) -> None:
        """Add seconds and calls of stages that were timed in another process."""
        with self._lock:
            for stage, (seconds, calls) in elsewhere.items():
                before = self._totals[stage]
                self._totals[stage] = Total(before.seconds + seconds, before.calls + calls)

    def totals(self) -> dict[str, Total]:
        """Return seconds and calls of every stage so far, including the current one."""
        with self._lock:
            going_on = {self.current: self._so_far()} if self.current else {}
            return self._totals | going_on

    def _so_far(self) -> Total:
        seconds, calls = self._totals[self.current]
        return Total(seconds + time.perf_counter() - self._entered, calls + 1)


class StageColumns:
    """The log's `seconds_<stage>`: each stage's time since the last row, over all threads."""

    def __init__(self, threads: Sequence[Stages]) -> None:
        self._threads = threads
        self._before = self._sums()

    def row(self) -> dict[str, float]:
        """Return the columns since the last call."""
        before, self._before = self._before, self._sums()
        return {f"seconds_{stage}": now - before[stage] for stage, now in self._before.items()}

    def _sums(self) -> dict[str, float]:
        totals = [thread.totals() for thread in self._threads]
        return {stage: sum(total[stage].seconds for total in totals) for stage in STAGES}
