# ruff: noqa: E402 (the import path is put right before the imports)
"""Compare training speed with Sample Factory on the same game, network, unroll, batch and cores.

    benchmarks/peers/sample_factory/install.sh
    python benchmarks/peers.py                                 about twenty minutes
    python benchmarks/peers.py --rounds 5 --json peers.json

The runs alternate within each round, so that other load on the machine affects all of them. The
table gives medians of agent steps/s after a warm-up, and medians of the rounds' ratios. Our command
is `launch/atari.py --core lstm`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_run_options, check_run_options, last_words
from benchmarks.json_file import write_json
from benchmarks.machine import describe, in_words
from benchmarks.timing import median_ratio, play_rounds
from benchmarks.training import measure_whole
from fastweights.host import UserError, one_line_errors, processors
from fastweights.launch.cli.parser import Parser

FOLDER = ROOT / "benchmarks" / "peers" / "sample_factory"
OURS = "fastweights"
PATIENCE = 300  # seconds beyond --seconds after which Sample Factory is considered stuck


def sample_factory(python: Path, mode: str, game: str, seconds: float) -> float:
    """Return agent steps/s of one run of Sample Factory; `mode` is "serial" or "async"."""
    cores = str(processors())
    words = ["--mode", mode, "--env", game, "--seconds", str(seconds), "--cores", cores]
    threads = {"OMP_NUM_THREADS": cores}
    try:
        done = subprocess.run(
            [str(python), str(FOLDER / "run.py"), *words],
            capture_output=True,
            text=True,
            timeout=seconds + PATIENCE,
            env=os.environ | threads,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"Sample Factory, {mode}, did not finish in time; leave it out with --modes"
        ) from error
    if done.returncode:
        last = last_words(done.stderr)
        raise UserError(f"Sample Factory, {mode}, failed: {last}; try {FOLDER / 'run.py'} alone")
    return json.loads(done.stdout.splitlines()[-1])["agent_steps_per_second"]


def ours(game: str, seconds: float, guess: float) -> float:
    """Return agent steps/s of our run, from its log; it has about `guess * seconds` steps."""
    return measure_whole("paper", "lstm", game, seconds, guess)["whole"]


def show(
    rates: Mapping[str, list[float]], times: Mapping[str, float], described: Mapping[str, object]
) -> None:
    """Print the table; `times` says how many times faster we are than each peer."""
    title = in_words(described)
    table = Table(title=f"agent steps/s\n{title}")
    for column in ("", "median", "each round", "fastweights is faster"):
        table.add_column(column, justify="right" if column else "left")
    for name, found in rates.items():
        faster = f"{times[name]:.1f} times" if name in times else ""
        every = " ".join(f"{rate:,.0f}" for rate in found)
        table.add_row(name, f"{statistics.median(found):,.0f}", every, faster)
    Console(width=120).print(table)


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    add_run_options(parser, "runs of each", "length of a run", 120.0, json="rates")
    parser.add_argument(
        "--guess",
        type=float,
        default=650.0,
        help="our agent steps/s, roughly; sets the length of our run (default 650)",
    )
    parser.add_argument(
        "--modes", nargs="+", choices=["serial", "async"], default=["serial", "async"],
        help="modes of Sample Factory: serial, async (default: both)",
    )  # fmt: skip
    parser.add_argument(
        "--python", type=Path, default=FOLDER / ".venv" / "bin" / "python",
        help="Python of Sample Factory, as install.sh prints it",
    )  # fmt: skip
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(arguments)
    if not options.python.exists():
        raise UserError(f"there is no {options.python}: run {FOLDER / 'install.sh'} first")
    check_run_options(options, "guess")
    theirs = {
        f"Sample Factory, {mode}": partial(
            sample_factory, options.python, mode, options.env, options.seconds
        )
        for mode in options.modes
    }
    cases = theirs | {OURS: partial(ours, options.env, options.seconds, options.guess)}
    described = describe()
    rates = play_rounds(cases, options.rounds, "{:.0f}".format)
    times = {name: median_ratio(rates[OURS], rates[name]) for name in theirs}
    show(rates, times, described)
    write_json(options.json, {"machine": described, "rates": rates, "times": times})


if __name__ == "__main__":
    main()
