# ruff: noqa: E402 (the import path is put right before the imports)
"""What it costs to spread a run: a second learner; Ray's actors, their messages, their replacement.

    python benchmarks/distributed.py                           about a quarter of an hour
    python benchmarks/distributed.py --parts wire              a minute
    python benchmarks/distributed.py --json distributed.json

What is compared takes turns, round by round, so that a busy moment hits each; tables give medians.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[0] = str(ROOT)

from rich.console import Console
from rich.table import Table

from benchmarks import learners, remote_actors
from benchmarks.arguments import check_above_zero, check_game
from benchmarks.json_file import check_folder, write_json
from benchmarks.machine import describe
from fastweights.cores import CORES
from fastweights.host.errors import UserError, one_line_errors
from fastweights.launch.cli.parser import Parser
from fastweights.training.presets import PRESETS


class Part(NamedTuple):
    """One table."""

    measure: Callable[[], dict[str, Any]]
    rows: Callable[[dict[str, Any]], list[tuple[str, ...]]]
    columns: tuple[str, ...]
    check: Callable[[], object] = lambda: None  # a `UserError` where it cannot be measured


def parts(options: argparse.Namespace) -> dict[str, Part]:
    """Everything that can be measured."""
    what = (options.game, options.core)
    return {
        "learners": Part(
            partial(learners.measure, *what, options.preset, options.updates, options.rounds),
            learners.rows,
            (
                "",
                "agent steps/s of a core",
                "share of alone",
                "share of alone on both",
                "of an update for working together",
            ),
            learners.two_cores,
        ),
        "ray": Part(
            partial(remote_actors.rates, *what, options.updates, options.rounds),
            remote_actors.rate_rows,
            ("", "agent steps/s", "ray's share of it"),
            remote_actors.need_ray,
        ),
        "wire": Part(
            partial(remote_actors.wire, *what, rollouts=20),
            remote_actors.wire_rows,
            ("", "bytes an agent step", "ms a message, there and back"),
        ),
        "recovery": Part(
            partial(remote_actors.recovery, *what, options.rounds),
            remote_actors.recovery_rows,
            ("", "seconds", "every round"),
            remote_actors.need_ray,
        ),
    }


def show(name: str, part: Part, found: dict[str, Any]) -> None:
    table = Table(title=f"{name}: {found['game']}, {found['core']}")
    for column in part.columns:
        table.add_column(column, justify="right" if column else "left")
    for row in part.rows(found):
        table.add_row(*row)
    Console(width=100).print(table)


def parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("--parts", nargs="+", help="learners, ray, wire, recovery (default: all)")
    parser.add_argument("--game", default="Qbert", help="default Qbert")
    parser.add_argument("--core", choices=list(CORES), default="rdn", help="default rdn")
    presets = {"choices": list(PRESETS), "default": "quick"}
    parser.add_argument("--preset", **presets, help="of the learners: quick")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each: 3")
    parser.add_argument("--updates", type=int, default=30, help="of each run, warm: 30")
    parser.add_argument("--json", type=Path, help="write machine and findings to this file")
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    """The command."""
    options = parser().parse_args(arguments)
    check_above_zero(options, "rounds", "updates")
    check_game(options.game)
    check_folder(options.json)
    every = parts(options)
    asked = options.parts or list(every)
    if unknown := sorted(set(asked) - set(every)):
        raise UserError(f"no part is called {unknown[0]}: {', '.join(every)} are")
    for name in asked:
        every[name].check()
    content: dict[str, Any] = {"machine": describe()}
    for name in asked:
        content[name] = every[name].measure()
        show(name, every[name], content[name])
        write_json(options.json, content)  # the next part may fail


if __name__ == "__main__":
    main()
