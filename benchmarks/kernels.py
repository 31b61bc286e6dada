# ruff: noqa: E402 (the import path is put right before the imports)
"""How fast the recurrences are: every backend beside the reference loop, in one run.

    python benchmarks/kernels.py                      all operations and sizes, a table
    python benchmarks/kernels.py --ops delta_rule --sizes rl act --compile --json result.json

The backends take turns round by round, so that a busy moment hits all of them; the table gives
medians and how many times faster the device's own kernel is. Run the tests first.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])  # else `kernels` would be this very file

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.json_file import check_folder, write_json
from benchmarks.kernel_calls import CALLS, COMPILED, MODES, SIZES, Row, compiled, contenders
from benchmarks.machine import describe
from benchmarks.timing import take_turns
from kernels.registry import OPERATIONS
from launch.allocator import tune_allocator
from launch.failures import UserError, one_line_errors


def measure(name: str, call: str, mode: str, options: argparse.Namespace) -> list[Row]:
    """One row for each backend; those that cannot do the call say why."""
    device = options.device
    runs, rows = contenders(name, call, mode, device)
    if options.compile:
        run, row = compiled(name, call, mode, device, options.compile_steps)
        rows.append(row)
        runs |= {COMPILED: run} if run else {}
    samples = take_turns(runs, options.rounds, options.seconds, device)
    medians = {backend: statistics.median(times) for backend, times in samples.items()}
    known = {row["backend"]: row for row in rows}
    for backend, median in medians.items():
        known[backend] = known.get(backend, {"backend": backend}) | {
            "median_ms": 1e3 * median,
            "best_ms": 1e3 * min(samples[backend]),
            "rounds": len(samples[backend]),
        }
        if "reference" in medians:
            known[backend]["times_faster"] = medians["reference"] / median
    return [{"operation": name, "size": call, "mode": mode, **row} for row in known.values()]


def show(rows: list[Row], described: dict[str, Any], device: str) -> None:
    """A line for each call; why something is missing stands below."""
    title = ", ".join(f"{key} {value}" for key, value in described.items() if value)
    backends = [b for b in ("reference", COMPILED, "chunked", device) if _has(rows, b)]
    table = Table(title=f"{title}\nmilliseconds")
    faster = [f"faster than {b}" for b in backends if b in ("reference", COMPILED)]
    compile_time = ["compiled in s"] if COMPILED in backends else []
    for column in ("operation", "size", "mode", *backends, *faster, *compile_time):
        left = column in ("operation", "size", "mode")
        table.add_column(column, justify="left" if left else "right")
    cells: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        key = row["operation"], row["size"], row["mode"]
        cells.setdefault(key, {})[row["backend"]] = row
    for key, found in cells.items():
        ms = {b: found.get(b, {}).get("median_ms") for b in backends}
        ours = ms.get(device)
        ratios = [
            ms[b] / ours if ms[b] and ours else None
            for b in backends
            if f"faster than {b}" in faster
        ]
        seconds = [found.get(COMPILED, {}).get("compile_s")] if compile_time else []
        numbers = [_number(value, 4) for value in ms.values()]
        table.add_row(*key, *numbers, *(_number(value, 3) for value in (*ratios, *seconds)))
    Console(width=140).print(table)
    for row in rows:
        if reason := row.get("absent"):
            print(f"{row['operation']} {row['size']} {row['mode']}: no {row['backend']}, {reason}")


def _has(rows: list[Row], backend: str) -> bool:
    return any(row["backend"] == backend and "median_ms" in row for row in rows)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", nargs="+", choices=list(OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--rounds", type=int, default=7, help="samples of a backend, at most: 7")
    parser.add_argument("--seconds", type=float, default=30.0, help="a call's, about: 30")
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's own)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile of the loop too: half a minute each"
    )
    parser.add_argument(
        "--compile-steps", type=int, default=64, help="longest loop to compile: 64 steps"
    )
    parser.add_argument("--json", type=Path, help="write machine and rows to this file")
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> None:
    """The command."""
    options = parser().parse_args(words)
    check_folder(options.json)
    if options.rounds < 1 or options.seconds <= 0:
        raise UserError("--rounds and --seconds must be above 0")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device")
    tune_allocator()  # as every training run does
    if options.threads:
        torch.set_num_threads(options.threads)
    described, rows = describe(options.device), []
    todo = [
        (name, call, mode)
        for name in options.ops
        for size in options.sizes
        for call in SIZES[size]
        for mode in options.modes
        if mode == "forward" or CALLS[call]["T"] > 1
    ]
    for number, cell in enumerate(todo, 1):
        print(f"{number}/{len(todo)} {' '.join(cell)}", file=sys.stderr, flush=True)
        rows += measure(*cell, options)
    show(rows, described, options.device)
    write_json(options.json, {"machine": described, "rows": rows})


if __name__ == "__main__":
    main()
