"""Measure how long it takes to build each C++ kernel with an empty cache.

    python benchmarks/builds.py                      print a table
    python benchmarks/builds.py --json builds.json   write a file, too

Forward and backward are compiled in parallel, as on first use, for float32. Each build starts with
an empty cache. The time is in seconds, from the call until both functions are loaded.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import check_above_zero
from benchmarks.json_file import check_folder, write_json
from benchmarks.machine import building, describe
from benchmarks.timing import told_rounds
from fastweights.host import one_line_errors
from fastweights.kernels import split_map
from fastweights.kernels.machinery import cpu_build
from fastweights.kernels.pictures import max_pool, pixels, residual_unit
from fastweights.kernels.registry import OPERATIONS
from fastweights.launch.cli.parser import Parser

LANES = (16, 32, 64)
WANTED = 2.0  # seconds: longest acceptable build
EXPECTED = 1.0  # seconds: rough length of a build


def sources() -> dict[str, tuple[Path, int | None]]:
    """Return each kernel's source, and its keys or input channels if not equal to the outputs."""
    found: dict[str, tuple[Path, int | None]] = {
        name: (each.backends["cpu"].kernel.source, None) for name, each in OPERATIONS.items()
    }
    return found | {
        "convolve_pool": (cpu_build.KERNELS / "pictures/convolve_pool/cpu.cpp", None),
        "convolve_pool, pixels": (cpu_build.KERNELS / "pictures/convolve_pool/pixels.cpp", 4),
        "residual_unit": (cpu_build.KERNELS / residual_unit.SOURCE, None),
        "pixels": (cpu_build.KERNELS / pixels.SOURCE, None),
        "max_pool": (cpu_build.KERNELS / max_pool.SOURCE, None),
        "split_map": (cpu_build.KERNELS / split_map.SOURCE, None),
    }


def seconds_to_build(source: Path, lanes: tuple[int, int]) -> float:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FASTWEIGHTS_CACHE"] = str(Path(cache, "kernels"))
        cpu_build.library.cache_clear()
        began = time.perf_counter()
        cpu_build.library(source, "float", lanes)
        return time.perf_counter() - began


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return kernel -> head size or channels -> seconds in each round; the kernels alternate."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in sources()}
    for _ in told_rounds(rounds, EXPECTED * len(found) * len(LANES)):
        for name, (source, keys) in sources().items():
            for lanes in LANES:
                taken = seconds_to_build(source, (keys or lanes, lanes))
                found[name].setdefault(str(lanes), []).append(taken)
    return found


def table(found: dict[str, dict[str, list[float]]]) -> Table:
    columns = (f"head size or channels {lanes}" for lanes in LANES)
    shown = Table("kernel", *columns, title="Seconds to build")
    for name, sizes in found.items():
        shown.add_row(name, *(f"{statistics.median(taken):.2f}" for taken in sizes.values()))
    return shown


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="builds of each kernel (default 3)")
    parser.add_argument("--json", type=Path, help="write machine and seconds to this file")
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(arguments)
    check_folder(options.json)
    check_above_zero(options, "rounds")
    with building():
        cpu_build.compiler()
        machine = describe()
        found = measure(options.rounds)
    Console(width=100).print(table(found))
    slowest = max(statistics.median(each) for sizes in found.values() for each in sizes.values())
    taken = f"the slowest build takes {slowest:.2f} s; the limit is {WANTED:.0f} s"
    print(f"{machine['compiler']}: {taken}")
    write_json(options.json, {"machine": machine, "seconds": found})


if __name__ == "__main__":
    main()
