"""Train every core on the T-maze with several seeds and compare them in one table.

For example: `python launch/t_maze.py`.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host.waiting import sleep_while_waiting

    sys.path.pop(0)  # the folders beside the package are not packages
    sleep_while_waiting()  # torch is not loaded yet

from fastweights.cores import CORES
from fastweights.cores.options import is_named_by_size
from fastweights.evaluation.reports.curves import agent_steps
from fastweights.experiments.agent_cells import AgentRun
from fastweights.experiments.agent_logs import RETURN, curves_of
from fastweights.experiments.grid import Grid, cells, rebuild
from fastweights.experiments.pictures import Panel, draw_curves
from fastweights.experiments.rows import Row
from fastweights.experiments.table import Table, label, write_grid
from fastweights.host.commands import typed
from fastweights.host.errors import UserError, one_line_errors, user_input
from fastweights.launch.cli.parser import Parser, count
from fastweights.training.presets import preset

HELP = """{purpose}

    {t_maze}                     all cores, three seeds
    {t_maze} --cores rdn lstm --seeds 1 2 --out /tmp/maze

Each run is `{atari} --preset maze --core CORE --seed SEED`, on one thread, as many at once as there
are processors. Finished runs in the folder are kept, and those cut off go on; a run with other
options than the preset's is refused.
Writes results.json (options and every test episode's return), table.md, .csv, .json and .png (share
of test games won) and learning_curves.png."""

TITLE = "T-maze, corridor of 10"


def parser() -> argparse.ArgumentParser:
    commands = {name: typed(name) for name in ("t_maze", "atari")}
    purpose = (__doc__ or "").partition("\n")[0]
    parser = Parser(HELP.format(purpose=purpose, **commands), prog=commands["t_maze"])
    default = [name for name in CORES if not is_named_by_size(name)]
    named = {"metavar": "CORE", "help": f"default: {' '.join(default)}"}
    parser.add_argument("--cores", nargs="+", default=default, **named)
    seeds = {"type": count, "default": [1, 2, 3], "metavar": "SEED"}
    parser.add_argument("--seeds", nargs="+", help="of each core: 1 2 3", **seeds)
    steps = {"type": count, "metavar": "STEPS", "help": "agent steps of each run: the preset's"}
    parser.add_argument("--total-steps", **steps)
    jobs = {"type": count, "default": 0, "help": "runs at once; 0: as many as there are cores"}
    parser.add_argument("--jobs", **jobs)
    runs = Path("runs") / "t_maze"
    parser.add_argument("--runs", type=Path, default=runs, help=f"folder of the runs: {runs}")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the table, the results and the pictures: that of the runs",
    )
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = parser().parse_args(words)
    runs, out = options.runs.resolve(), (options.out or options.runs).resolve()
    if any(len(set(each)) < len(each) for each in (options.cores, options.seeds)):
        raise UserError("--cores and --seeds take each of theirs once")
    with user_input():
        make = partial(run_of, runs=runs, total_steps=options.total_steps)
        grid = Grid("T-maze", cells(make, core=options.cores, seed=options.seeds), runs)
    return rebuild(grid, partial(write, grid, options.seeds, out), out, options.jobs)


def run_of(core: str, seed: int, runs: Path, total_steps: int | None = None) -> AgentRun:
    """One run of the table, in `runs`. Raises a one-line `ValueError` for numbers of no use."""
    options = replace(preset("maze", core), seed=seed, savedir=runs, xpid=f"{core}-{seed}")
    if total_steps is not None:
        options = replace(options, learner=replace(options.learner, total_steps=total_steps))
    return AgentRun(options, "maze")


def won_share(result: Mapping[str, Any]) -> float:
    """A game's return is above zero exactly where the agent turned to the side of the cue."""
    return 100 * fmean(one > 0 for one in result["returns"])


def table(seeds: Sequence[int]) -> Table:
    """The share of test games won: each seed, and the mean of all."""
    each = {f"seed {seed}": partial(_of_seed, seed) for seed in sorted(seeds)}
    columns = {"core": label("core", code=True), **each, "mean ± std": _spread}
    return Table(columns=columns, axis="test games won, percent (chance is 50)", title=TITLE)


def write(grid: Grid, seeds: Sequence[int], out: Path, failures: Mapping[str, str]) -> None:
    rows = write_grid(grid, table(seeds), won_share, out, failures)
    curves = {row.labels["core"]: curves_of(row, agent_steps) for row in rows}
    unit = f"{RETURN}\n(1: all won, 0: chance)"
    draw_curves([[Panel(curves, "agent steps", unit)]], out / "learning_curves.png", TITLE)


def _of_seed(seed: int, row: Row) -> str:
    return f"{row.values[seed]:.1f} %" if seed in row.values else ""


def _spread(row: Row) -> str:
    return f"{row.mean:.1f} ± {row.std:.1f} %" if row.values else ""


if __name__ == "__main__":
    sys.exit(main())
