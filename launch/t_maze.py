"""Train every core on the T-maze with several seeds and compare them in one table.

For example: `python launch/t_maze.py`.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host import run_command

    sys.path.pop(0)  # the folders beside the package are not packages
    sys.exit(run_command(Path(__file__).stem))

from fastweights.cores import CORES, is_named_by_size
from fastweights.experiments import Grid, cells, rebuild, t_maze_run, write_t_maze_table
from fastweights.host import one_line_errors, typed_command, user_input
from fastweights.launch.cli.grid_options import add_axis, add_grid_options, axes_of, folders
from fastweights.launch.cli.parser import Parser

HELP = """{purpose}

    {t_maze}                     all cores, three seeds
    {t_maze} --cores rdn lstm --seeds 1 2 --out /tmp/maze

Each run executes
    {atari} --preset maze --core CORE --seed SEED
on one thread. There are as many runs at a time as CPU cores. Finished runs in the folder are kept
and interrupted runs are resumed; runs whose options differ from the preset's are rejected.

The command writes results.json (options and the return of each test game), table.md, .csv, .json
and .png (share of test games won), and learning_curves.png."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    commands = {name: typed_command(name) for name in ("t_maze", "atari")}
    purpose = (__doc__ or "").partition("\n")[0]
    parser = Parser(HELP.format(purpose=purpose, **commands), prog=commands["t_maze"])
    add_axis(parser, "core", [name for name in CORES if not is_named_by_size(name)])
    add_grid_options(parser, seeds=(1, 2, 3), runs=Path("runs") / "t_maze")
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = parser().parse_args(words)
    axes, (runs, out) = axes_of(options, ["core"]), folders(options)
    with user_input():
        make = partial(t_maze_run, runs=runs, total_steps=options.total_steps)
        grid = Grid("T-maze", cells(make, **axes), runs)
    return rebuild(grid, partial(write_t_maze_table, grid, options.seed, out), out, options.jobs)
