"""`--profile`: the time of a run's stages and operators, as a table and as a trace.

RUN/profile.txt   seconds of each stage in each thread, then the slowest operators
RUN/trace.json    a few updates, operator by operator, for chrome://tracing or ui.perfetto.dev
"""

import errno
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

from fastweights.host.atomic_files import replacing, write_bytes
from fastweights.host.errors import describe_os_error
from fastweights.host.stages import STAGES, Stages, Total

WARM_UP = 5  # updates before the trace: the first ones build kernels and allocate memory
TRACED = 2  # updates; the trace of a single update takes tens of megabytes
_OPERATORS = 20
_PATIENCE = 2.0  # seconds for the operator table at a run's end, which may be a request to stop
_POLL = 0.05
_NO_OPERATORS = "no operator table: the run ended first; see trace.json"


def profiled(
    rows: Iterator[dict[str, Any]], threads: Sequence[Stages], folder: Path
) -> Iterator[dict[str, Any]]:
    """Pass `rows` on, trace a few updates, and at the end write and print the table.

    If the run continues after the trace, the table counts from the trace's end. If there are no
    rows, as when all updates were made earlier, an existing profile stays. A file that cannot be
    written is reported and does not end the run. The first of `threads` is the caller's; its
    stages' checks may end the run while operators are summed up.
    """
    table = _StageTable(threads)
    operators = f"no trace: the run ended before update {WARM_UP + 1}"
    trace: profile | None = None
    count = 0
    with closing(rows):
        try:
            for count, row in enumerate(rows, start=1):
                yield row
                if count == WARM_UP:
                    trace = _start(threads)
                elif count == WARM_UP + TRACED:
                    ended, trace, operators = trace, None, _NO_OPERATORS
                    _stop(ended, threads, folder / "trace.json")
                    operators = _operators(ended, threads[0].check)
                    table = _StageTable(threads)
        finally:
            if trace is not None:  # the run ended before all updates were traced
                _stop(trace, threads, folder / "trace.json")
                operators = _operators(trace, patience=_PATIENCE)
            if count:
                _write_table(str(table), operators, folder / "profile.txt")
            else:
                print("profile: not written, because no update was made", flush=True)


class _StageTable:
    """A table of every thread's stages since this object was made."""

    def __init__(self, threads: Sequence[Stages]):
        self._threads, self._since = threads, time.perf_counter()
        self._before = [thread.totals() for thread in threads]

    def __str__(self) -> str:
        wall = time.perf_counter() - self._since
        lines = [
            f"{'thread':10} {'stage':18} {'seconds':>9} {'share':>7} {'calls':>8} {'ms/call':>9}"
        ]
        for thread, before in zip(self._threads, self._before, strict=True):
            after = thread.totals()
            spent = {stage: after[stage].since(before[stage]) for stage in STAGES}
            for stage, total in sorted(spent.items(), key=lambda item: -item[1].seconds):
                if total.calls:
                    lines.append(_line(thread.name, stage, total, wall))
            rest = wall - sum(total.seconds for total in spent.values())
            lines.append(_line(thread.name, "(none of these)", Total(rest, 0), wall))
        used = [f"{stage}: {meaning}" for stage, meaning in STAGES.items()]
        return "\n".join([f"{wall:.1f} seconds of training", *lines, "", *used])


def _line(thread: str, stage: str, total: Total, wall: float) -> str:
    each = f"{1000 * total.seconds / total.calls:9.3f}" if total.calls else ""
    return (
        f"{thread:10} {stage:18} {total.seconds:9.3f} {100 * total.seconds / wall:5.1f} % "
        f"{total.calls or '':>8} {each}"
    ).rstrip()


def _start(threads: Sequence[Stages]) -> profile:
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    # With torch's public options, only the calling thread is traced.
    everyone = _ExperimentalConfig(profile_all_threads=True)
    trace = profile(activities=activities, experimental_config=everyone)
    trace.start()
    for thread in threads:
        thread.annotate = record_function
    return trace


def _stop(trace: profile, threads: Sequence[Stages], path: Path) -> None:
    for thread in threads:
        thread.annotate = nullcontext
    trace.stop()
    try:
        with replacing(path) as partial:
            _export(trace, partial)
    except OSError as error:
        print(f"no trace: {describe_os_error(error)}", flush=True)


def _export(trace: profile, path: Path) -> None:
    """Write the trace; raise an `OSError` if that failed, which torch does not report."""
    trace.export_chrome_trace(str(path))
    if not path.exists():
        path.with_name(f"{path.name}.tmp").unlink(missing_ok=True)  # where torch writes it first
        raise OSError(errno.EIO, "could not be written: is the disk full?")


def _write_table(stages: str, operators: str, path: Path) -> None:
    try:
        write_bytes(path, f"{stages}\n\n{operators}\n".encode())
    except OSError as error:
        print(f"{stages}\nno profile: {describe_os_error(error)}", flush=True)
    else:
        print(f"{stages}\nprofile: {path}", flush=True)


def _operators(
    trace: profile, check: Callable[[], None] = lambda: None, patience: float = math.inf
) -> str:
    """Return the operator table; this takes many seconds, during which `check` may raise."""
    tables: list[str] = []

    def add_up() -> None:
        averages = trace.key_averages()
        on_gpu = any(operator.self_device_time_total for operator in averages)
        key = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        tables.append(averages.table(sort_by=key, row_limit=_OPERATORS))

    adding, begun = threading.Thread(target=add_up, daemon=True), time.monotonic()
    adding.start()
    while adding.is_alive() and time.monotonic() - begun < patience:
        adding.join(_POLL)
        check()
    return tables[0] if tables else _NO_OPERATORS
