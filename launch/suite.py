"""Train the agents of a predefined grid, such as the ablation, and write its table.

For example: `python launch/suite.py ablation`.
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

from fastweights.experiments import SUITES, Grid, cells, rebuild, write_suite_table
from fastweights.host import UserError, one_line_errors, typed_command, unknown_name, user_input
from fastweights.launch.cli.grid_options import add_axis, add_grid_options, axes_of, folders
from fastweights.launch.cli.parser import Parser

HELP = """{purpose}

{suites}

For example:
    {command} ablation
    {command} ablation --games Qbert --arms quick no-reuse --seeds 1 2

`{command} NAME --help` shows a suite's options. docs/experiments.md gives the cost of
each suite."""
OF_ONE = """{question}

{note}Each run trains one agent with `{atari}` on one thread. There are as many runs at
a time as CPU cores. Finished runs in the folder are kept and interrupted runs are resumed; runs
whose options differ from the suite's are rejected.

The command writes table.md, .csv, .json and .png (training return with its 95 % interval over
seeds, agent steps, CPU minutes), learning_curves.png, results.json (each run's options and
revision) and logs.csv (200 rows of each run's log)."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    command, width = typed_command("suite"), max(map(len, SUITES))
    purpose = (__doc__ or "").partition("\n")[0]
    suites = "\n".join(f"    {name:{width}}  {one.question}" for name, one in SUITES.items())
    parser = Parser(HELP.format(purpose=purpose, command=command, suites=suites), prog=command)
    named = parser.add_subparsers(dest="suite", metavar="NAME", required=True)
    for name, suite in SUITES.items():
        note = f"{suite.note}\n\n" if suite.note else ""
        text = OF_ONE.format(question=suite.question, note=note, atari=typed_command("atari"))
        of_one = named.add_parser(name, description=text)
        for axis, (default, _) in suite.axes.items():
            add_axis(of_one, axis, default)
        add_grid_options(of_one, suite.seeds, Path("runs") / name)
    return parser


@one_line_errors
def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    words = sys.argv[1:] if words is None else words
    if words and not words[0].startswith("-") and words[0] not in SUITES:
        raise UserError(unknown_name("suite", words[0], SUITES))
    options = parser().parse_args(words)
    suite = SUITES[options.suite]
    axes, (runs, out) = axes_of(options, list(suite.axes)), folders(options)
    with user_input():
        found = cells(partial(suite.run, runs, options.total_steps), **axes)
        grid = Grid(options.suite, found, runs)
    return rebuild(grid, partial(write_suite_table, suite, grid, out), out, options.jobs)
