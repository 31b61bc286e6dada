# ruff: noqa: E402 (the import path is put right before the imports)
"""Training speed and start-up time of this checkout beside another, measured by turns.

    git worktree add ../before COMMIT
    python benchmarks/checkouts.py --before ../before                  five minutes on two cores
    python benchmarks/checkouts.py --before ../before --presets paper published --json result.json

Training is `launch/atari.py` of either checkout with the same options, in agent steps/s by its own
log after a warm-up; start-up is the time that `--help` and `--list-cores` take, in seconds. Every
measurement is a process of its own. The table gives medians, and the median of the rounds' ratios
of this checkout to the other; a run above 1 and a start below 1 are improvements.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

sys.path[0] = str(Path(__file__).parents[1])

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import check_above_zero, check_game
from benchmarks.json_file import check_folder, write_json
from benchmarks.machine import describe, in_words
from benchmarks.timing import median_ratio, play_rounds
from benchmarks.training import measure_whole, said
from fastweights.cores import CORES
from fastweights.host.errors import UserError, one_line_errors
from fastweights.launch.cli.parser import Parser
from fastweights.training.presets import PRESETS

ROOT = Path(__file__).parents[1]
STARTS = ("--help", "--list-cores")
LIKELY = 400.0  # agent steps/s: how long a run of so many seconds is expected to be


def start(checkout: Path, flag: str) -> float:
    """Seconds until the command has answered. Raises `UserError` where it fails."""
    began = time.perf_counter()
    said([sys.executable, str(checkout / "launch" / "atari.py"), flag])
    return time.perf_counter() - began


def steps_per_second(checkout: Path, preset: str, core: str, env: str, seconds: float) -> float:
    """Of a run of about `seconds`. Raises `UserError` where it fails."""
    return measure_whole(preset, core, env, seconds, LIKELY, checkout)["whole"]


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each work: both checkouts' samples, their medians, and the median ratio."""
    checkouts = {"before": options.before.resolve(), "after": ROOT}
    works: dict[str, Callable[[Path], float]] = {
        f"{preset}, agent steps/s": partial(
            steps_per_second, preset=preset, core=options.core, env=options.env,
            seconds=options.seconds,
        )
        for preset in options.presets
    }  # fmt: skip
    works |= {f"{flag}, seconds": partial(start, flag=flag) for flag in STARTS}
    turns = {
        (work, name): partial(run, path)
        for work, run in works.items()
        for name, path in checkouts.items()
    }
    found = play_rounds(turns, options.rounds, lambda sample: f"{sample:.4g}")
    rows = []
    for work in works:
        before, after = found[work, "before"], found[work, "after"]
        told = {"before": median(before), "after": median(after)}
        rows.append(
            {"work": work, **told, "ratio": median_ratio(after, before)}
            | {"samples": {"before": before, "after": after}}
        )
    return rows


def show(rows: Sequence[dict], described: dict) -> None:
    """Prints the table."""
    table = Table("work", title=in_words(described))
    for column in ("before", "after", "ratio"):
        table.add_column(column, justify="right")
    for row in rows:
        numbers = (f"{row[name]:,.4g}" for name in ("before", "after"))
        table.add_row(row["work"], *numbers, f"{row['ratio']:.2f}")
    Console(width=100).print(table)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = Parser(__doc__)
    parser.add_argument("--before", type=Path, required=True, help="another checkout")
    parser.add_argument(
        "--presets", nargs="+", choices=list(PRESETS), default=["paper"], metavar="PRESET",
        help="presets to train with; the other checkout must have them (default: paper)",
    )  # fmt: skip
    parser.add_argument("--core", choices=list(CORES), default="rdn", help="default rdn")
    parser.add_argument("--env", default="Qbert", help="game (default Qbert)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default 3)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each run (default 15)")
    parser.add_argument("--json", type=Path, help="write machine and rows to this file")
    options = parser.parse_args(arguments)
    check_above_zero(options, "rounds", "seconds")
    check_game(options.env)
    check_folder(options.json)
    if not (options.before / "launch" / "atari.py").exists():
        raise UserError(f"--before {options.before}: there is no launch/atari.py in it")
    described = describe()
    rows = measure(options)
    show(rows, described)
    write_json(options.json, {"machine": described, "command": sys.argv[1:], "rows": rows})


if __name__ == "__main__":
    main()
