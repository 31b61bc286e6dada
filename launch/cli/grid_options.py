"""Options that all grid commands share: seeds, training steps, parallel runs, folders."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastweights.cores import import_core
from fastweights.host import UserError, resolved, user_input
from fastweights.launch.cli.parser import count


class _Once(argparse.Action):
    """Store a list of values; refuse a second list, which would silently replace the first."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        if getattr(namespace, self.dest) is not self.default:
            raise UserError(f"{option} is given twice: list all values after one {option}")
        setattr(namespace, self.dest, values)


def add_axis(parser: argparse.ArgumentParser, name: str, default: Sequence[str]) -> None:
    """Add `--NAMEs`, the values of one axis of the grid; the option is stored as `NAME`."""
    shown = {"metavar": name.upper(), "help": f"{name}s of the grid (default: {' '.join(default)})"}
    parser.add_argument(f"--{name}s", dest=name, nargs="+", action=_Once, default=default, **shown)


def add_grid_options(parser: argparse.ArgumentParser, seeds: Sequence[int], runs: Path) -> None:
    """Add `--seeds` (stored as `seed`), `--total-steps`, `--jobs`, `--runs` and `--out`."""
    usual = {"action": _Once, "type": count, "default": seeds, "metavar": "SEED"}
    text = f"seeds of the runs (default: {' '.join(map(str, seeds))})"
    parser.add_argument("--seeds", dest="seed", nargs="+", help=text, **usual)
    steps = {
        "type": count,
        "metavar": "STEPS",
        "help": "number of agent steps per run (default: the grid's)",
    }
    parser.add_argument("--total-steps", **steps)
    jobs = {"type": count, "default": 0, "help": "number of parallel runs; 0: one per CPU core"}
    parser.add_argument("--jobs", **jobs)
    parser.add_argument(
        "--runs", type=Path, default=runs, help=f"folder for the runs (default: {runs})"
    )
    parser.add_argument(
        "--out", type=Path, help="folder for tables and figures (default: the runs' folder)"
    )


def axes_of(options: argparse.Namespace, names: Sequence[str]) -> Mapping[str, Sequence[Any]]:
    """Return the values of these axes and the seeds; raise `UserError` for a value given twice."""
    axes = {name: getattr(options, name) for name in (*names, "seed")}
    with user_input():
        for core in axes.get("core", ()):
            import_core(core)
    if twice := [name for name, values in axes.items() if len(set(values)) < len(values)]:
        raise UserError(f"--{twice[0]}s has the same value twice: give each value once")
    return axes


def folders(options: argparse.Namespace) -> tuple[Path, Path]:
    """Return the folder of the runs and the output folder."""
    return resolved(options.runs), resolved(options.out or options.runs)
