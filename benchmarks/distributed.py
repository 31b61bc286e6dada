# ruff: noqa: E402 (the import path is put right before the imports)
"""Measure the cost of distributed runs: a second learner, and Ray's actors.

    python benchmarks/distributed.py                           about a quarter of an hour
    python benchmarks/distributed.py --parts wire              a minute
    python benchmarks/distributed.py --json distributed.json

Parts: `learners` compares one learner with two, `ray` compares Ray's actors with local ones, `wire`
measures the message of a rollout, and `recovery` times the replacement of a killed actor. Compared
runs alternate within each round, so that other load affects all of them. Tables give medians.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from rich.console import Console
from rich.table import Table

from benchmarks import learners, remote_actors
from benchmarks.arguments import check_above_zero, check_game
from benchmarks.json_file import check_folder, write_json
from benchmarks.machine import describe
from fastweights.cores import CORES
from fastweights.host import UserError, one_line_errors
from fastweights.launch.cli.parser import Parser
from fastweights.training.presets import PRESETS


class Part(NamedTuple):
    """A part of the benchmark, with one table."""

    measure: Callable[[], dict[str, Any]]
    rows: Callable[[dict[str, Any]], list[tuple[str, ...]]]
    columns: tuple[str, ...]
    check: Callable[[], object] = lambda: None  # raises `UserError` if it cannot run here


def parts(options: argparse.Namespace) -> dict[str, Part]:
    """Return all parts by name."""
    what = (options.env, options.core)
    return {
        "learners": Part(
            partial(learners.measure, *what, options.preset, options.updates, options.rounds),
            learners.rows,
            (
                "",
                "agent steps/s per core",
                "against one learner, 1 core",
                "against one learner, 2 cores",
                "exchange, share of the update",
            ),
            learners.two_cores,
        ),
        "ray": Part(
            partial(remote_actors.rates, *what, options.updates, options.rounds),
            remote_actors.rate_rows,
            ("", "agent steps/s", "Ray's rate / this rate"),
            remote_actors.need_ray,
        ),
        "wire": Part(
            partial(remote_actors.wire, *what, rollouts=20),
            remote_actors.wire_rows,
            ("", "bytes an agent step", "ms to encode and decode a message"),
        ),
        "recovery": Part(
            partial(remote_actors.recovery, *what, options.rounds),
            remote_actors.recovery_rows,
            ("", "median seconds", "each round's seconds"),
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
    parser.add_argument(
        "--parts", nargs="+", help="parts to measure: learners, ray, wire, recovery (default: all)"
    )
    parser.add_argument("--env", default="Qbert", help="game (default Qbert)")
    parser.add_argument("--core", choices=list(CORES), default="rdn", help="memory (default rdn)")
    presets = {"choices": list(PRESETS), "default": "quick"}
    parser.add_argument("--preset", **presets, help="preset of the part `learners` (default quick)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument(
        "--updates", type=int, default=30, help="updates of a run after its warm-up (default 30)"
    )
    parser.add_argument("--json", type=Path, help="file for the machine and the measurements")
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    options = parser().parse_args(arguments)
    check_above_zero(options, "rounds", "updates")
    check_game(options.env)
    check_folder(options.json)
    every = parts(options)
    asked = options.parts or list(every)
    if unknown := sorted(set(asked) - set(every)):
        raise UserError(f"unknown part {unknown[0]}; the parts are {', '.join(every)}")
    for name in asked:
        every[name].check()
    content: dict[str, Any] = {"machine": describe()}
    for name in asked:
        content[name] = every[name].measure()
        show(name, every[name], content[name])
        write_json(options.json, content)  # keep these figures if the next part fails


if __name__ == "__main__":
    main()
