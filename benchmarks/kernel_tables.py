"""Tables of the measurements made by `benchmarks/kernels.py`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from benchmarks.gpu_peers import CAPTURED, STEP_BY_STEP
from benchmarks.kernel_calls import COMPILED, COMPILED_STEP, Row
from benchmarks.machine import in_words
from benchmarks.timing import median_ratio

CALL = ("operation", "size", "mode")


def ratios(rows: Sequence[Row], described: Mapping[str, Any], device: str) -> Table:
    """Return a table of milliseconds, and of the speed-up of the device's own kernel."""
    cells: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        cells.setdefault(tuple(row[name] for name in CALL), {})[row["backend"]] = row
    with_times = {row["backend"]: None for row in rows if "median_ms" in row}
    measured = sorted(with_times, key=lambda backend: backend != "reference")  # the reference first
    shown = [
        b
        for b in ("reference", COMPILED, COMPILED_STEP, "chunked", device, CAPTURED)
        if b in measured
    ]
    slower = [b for b in measured if b not in (device, CAPTURED, "chunked")]
    compile_time = [b for b in (COMPILED, COMPILED_STEP) if b in measured]
    title = in_words(described)
    table = _table(
        f"{title}\nmilliseconds",
        *shown,
        *(f"faster than {b}" for b in slower),
        *(f"{b}: seconds to compile" for b in compile_time),
    )
    for key, found in cells.items():
        ms = {backend: row.get("median_ms") for backend, row in found.items()}
        taken = {backend: row.get("seconds") for backend, row in found.items()}
        times = [
            _ratio(taken.get(b), taken.get(CAPTURED if b == STEP_BY_STEP else device))
            for b in slower
        ]
        seconds = [found.get(b, {}).get("compile_s") for b in compile_time]
        table.add_row(
            *key,
            *(_number(ms.get(b), 4) for b in shown),
            *(_number(value, 3) for value in (*times, *seconds)),
        )
    return table


def reasons(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line with the reason for each missing measurement."""
    for row in rows:
        if reason := row.get("absent"):
            yield f"{' '.join(row[name] for name in CALL)}: no {row['backend']}, {reason}"


def foretold(rows: Sequence[Row], gigahertz: float) -> Table:
    """Return a table of the captured launches beside the estimates of `gpu_peers.ESTIMATES`."""
    columns = ("microseconds per step", "estimated", "share of the dependency chain")
    table = _table(f"captured launches, at {gigahertz} GHz", *columns)
    for row in rows:
        numbers = (_number(row[name], 3) for name in ("step_us", "estimated_us", "of_floor"))
        table.add_row(*(row[name] for name in CALL), *numbers)
    return table


def _table(title: str, *numbers: str) -> Table:
    table = Table(title=title)
    for name in CALL:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _ratio(slower: Sequence[float] | None, ours: Sequence[float] | None) -> float | None:
    return median_ratio(slower, ours) if slower and ours else None


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}g}"
