# ruff: noqa: E402 (the import path is put right before the imports)
"""How fast the recurrences are: every backend beside the reference loop, in one run.

    python benchmarks/kernels.py                      all operations and sizes, a table
    python benchmarks/kernels.py --ops delta_rule --sizes rl acting1 --json result.json

The backends take turns round by round, so that a busy moment hits all of them; the table gives
medians and how many times faster than the reference each one is. Run the tests first.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])  # else `kernels` would be this very file

import torch
from rich.console import Console
from rich.table import Table

import kernels
from benchmarks.json_file import check_folder, write_json
from benchmarks.machine import describe
from kernels.example import Example, make
from kernels.registry import OPERATIONS
from launch.allocator import tune_allocator
from launch.failures import one_line_errors

SIZES = {
    "rl": {"T": 50, "B": 32, "H": 4, "D": 32},
    "code": {"T": 456, "B": 64, "H": 16, "D": 16},
    "lm": {"T": 256, "B": 96, "H": 8, "D": 16},
    "acting1": {"T": 1, "B": 1, "H": 4, "D": 32},
    "acting32": {"T": 1, "B": 32, "H": 4, "D": 32},
}
RESETS = {"rl": 0.02}
SHORTEST_SAMPLE = 0.02  # seconds; shorter calls are repeated within a sample


def example(name: str, size: str, device: str) -> Example:
    """A call of float32 tensors; the LSTM is as wide as all heads together."""
    given = SIZES[size]
    width = given["D"] * given["H"] if name == "lstm" else given["D"]
    sizes = {**given, "K": given["D"], "V": given["D"], "D": width}
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(given["T"], given["B"], generator=generator) < RESETS.get(size, 0.0)
    return make(OPERATIONS[name], sizes, mask).to(torch.float32).to(torch.device(device))


def forward(case: Example) -> Callable[[], Any]:
    """A call without gradients; its arguments are put together beforehand, as a core has them."""
    signature = case.operation.signature
    options = list(signature.options.values())
    call = signature.unflatten(case.tensors, options)[: -len(options) or None]
    without_gradients = torch.no_grad()

    def run() -> None:
        with without_gradients:
            case.operation(*call, **case.options)

    return run


def forward_backward(case: Example) -> Callable[[], Any]:
    leaves = [t.requires_grad_(t.is_floating_point()) for t in case.tensors]
    inputs = [leaf for leaf in leaves if leaf.requires_grad]
    grad = torch.ones_like(case.run(leaves)[0])

    def run() -> None:
        torch.autograd.grad(case.run(leaves)[0], inputs, grad, allow_unused=True)

    return run


MODES = {"forward": forward, "forward+backward": forward_backward}


def seconds(run: Callable[[], Any], repeats: int, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        run()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / repeats


def measure(
    name: str, size: str, mode: str, rounds: int, device: str, compiled: bool
) -> list[dict]:
    """One row for each backend that can do the call."""
    case = example(name, size, device)
    runs: dict[str, Callable[[], Any]] = {}
    for backend, implementation in OPERATIONS[name].backends.items():
        letters = case.operation.signature.sizes(case.tensors)
        request = case.operation.request(torch.device(device), torch.float32, letters)
        if implementation.why_not(request) is None:
            runs[backend] = in_backend(backend, MODES[mode](example(name, size, device)))
    if compiled:
        inner = MODES[mode](example(name, size, device))
        runs["torch.compile"] = in_backend("reference", torch.compile(inner))
    samples: dict[str, list[float]] = {backend: [] for backend in runs}
    repeats = {
        backend: max(
            1, round(SHORTEST_SAMPLE / max(1e-9, min(seconds(run, 1, device) for _ in "12")))
        )
        for backend, run in runs.items()
    }
    for _ in range(rounds):
        for backend, run in runs.items():
            run()  # the backend before it left its own memory in the caches and the heap
            samples[backend].append(seconds(run, repeats[backend], device))
    medians = {backend: statistics.median(times) for backend, times in samples.items()}
    return [
        {
            "operation": name,
            "size": size,
            "mode": mode,
            "backend": backend,
            "median_ms": 1e3 * median,
            "best_ms": 1e3 * min(samples[backend]),
            "times_faster": medians["reference"] / median,
        }
        for backend, median in medians.items()
    ]


def in_backend(backend: str, run: Callable[[], Any]) -> Callable[[], Any]:
    def wrapped() -> None:
        with kernels.backend(backend):
            run()

    return wrapped


def show(rows: list[dict], described: dict[str, Any]) -> None:
    table = Table(title=", ".join(f"{k} {v}" for k, v in described.items() if v))
    for column in ("operation", "size", "mode", "backend", "ms", "times faster"):
        table.add_column(column, justify="right" if column in ("ms", "times faster") else "left")
    for row in rows:
        cells = (row["operation"], row["size"], row["mode"], row["backend"])
        table.add_row(*cells, f"{row['median_ms']:.4g}", f"{row['times_faster']:.1f}")
    Console(width=120).print(table)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", nargs="+", choices=list(OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--rounds", type=int, default=7, help="samples a backend (default 7)")
    parser.add_argument("--threads", type=int, help="torch threads (default: torch's own)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile of the loop too: slow"
    )
    parser.add_argument("--json", type=Path, help="write machine and rows to this file")
    options = parser.parse_args(arguments)
    check_folder(options.json)
    tune_allocator()  # as every training run does
    if options.threads:
        torch.set_num_threads(options.threads)
    described, rows = describe(options.device), []
    for name in options.ops:
        for size in options.sizes:
            for mode in options.modes:
                if SIZES[size]["T"] == 1 and mode != "forward":
                    continue
                rows += measure(name, size, mode, options.rounds, options.device, options.compile)
                print(f"{name} {size} {mode}", file=sys.stderr)
    show(rows, described)
    write_json(options.json, {"machine": described, "rows": rows})


if __name__ == "__main__":
    main()
