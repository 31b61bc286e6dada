"""Compare the speed of all backends of the recurrences with the reference loop.

    python benchmarks/kernels.py                      print a table of all operations and sizes
    python benchmarks/kernels.py --ops delta_rule --sizes rl act --compile --json result.json
    python benchmarks/kernels.py --device cuda        include other libraries and our estimates

The backends alternate within each round, so that other load on the machine affects all of them. The
table gives medians and the speed-up of the device's own kernel, which is the median of the rounds'
ratios. Run the tests first.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # otherwise `import kernels` would find this file
    from fastweights.host import sleep_while_waiting

    sleep_while_waiting()  # training runs do so, too

from rich.console import Console

from benchmarks.gpu_peers import against_foretold, peers
from benchmarks.json_file import write_json
from benchmarks.kernel_calls import (
    CALLS,
    MODES,
    SIZES,
    Row,
    compiled,
    contenders,
    surroundings,
)
from benchmarks.kernel_tables import foretold, ratios, reasons
from benchmarks.timing import add_options, median_ratio, take_turns, use_options
from fastweights.host import one_line_errors, tune_allocator
from fastweights.kernels.registry import OPERATIONS
from fastweights.launch.cli.parser import Parser


def measure(name: str, call: str, mode: str, options: argparse.Namespace) -> list[Row]:
    """Return one row per backend; if a backend cannot compute the call, its row has the reason."""
    device = options.device
    runs, rows = contenders(name, call, mode, device)
    if options.compile:
        more, further = compiled(name, call, mode, device, options.compile_steps)
        runs, rows = runs | more, rows + further
    if device == "cuda":
        others, missing = peers(name, call, mode, device)
        runs, rows = runs | others, rows + missing
    samples = take_turns(
        runs, options.rounds, options.seconds, device, partial(surroundings, mode=mode)
    )
    known = {row["backend"]: row for row in rows}
    for backend, seconds in samples.items():
        known[backend] = known.get(backend, {"backend": backend}) | {
            "median_ms": 1e3 * statistics.median(seconds),
            "best_ms": 1e3 * min(seconds),
            "rounds": len(seconds),
            "seconds": seconds,
        }
        if "reference" in samples:
            known[backend]["times_faster"] = median_ratio(samples["reference"], seconds)
    return [{"operation": name, "size": call, "mode": mode, **row} for row in known.values()]


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument(
        "--ops",
        nargs="+",
        choices=list(OPERATIONS),
        default=list(OPERATIONS),
        help="operations to time (default: all)",
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        choices=list(SIZES),
        default=list(SIZES),
        help="sizes of the calls (default: all)",
    )
    parser.add_argument(
        "--modes",
        nargs="+",
        choices=list(MODES),
        default=list(MODES),
        help="passes to time (default: both)",
    )
    add_options(parser, "measurements of each backend", "for each call", 30.0)
    parser.add_argument(
        "--gigahertz",
        type=float,
        default=1.98,
        help="clock of the GPU in GHz (default 1.98, an H100's)",
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="also time torch.compile on single steps and whole loops; adds a minute or two",
    )
    parser.add_argument(
        "--compile-steps",
        type=int,
        default=8,
        help="steps of the longest loop to compile whole (default 8; 50 take minutes)",
    )
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(words)
    described, rows = use_options(options, "gigahertz", "compile_steps"), []
    tune_allocator()  # training runs do so, too
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
    console = Console(width=180)
    console.print(ratios(rows, described, options.device))
    for line in reasons(rows):
        print(line)
    content = {"machine": described, "rows": rows}
    if options.device == "cuda":
        content["foretold"] = against_foretold(rows, options.gigahertz)
        console.print(foretold(content["foretold"], options.gigahertz))
    write_json(options.json, content)


if __name__ == "__main__":
    main()
