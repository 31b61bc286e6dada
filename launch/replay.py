"""Re-run the first updates of a lockstep run and check that they are bit-identical.

For example: `python launch/replay.py RUN`.
"""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host import run_command

    sys.path.pop(0)  # the folders beside the package are not packages
    sys.exit(run_command(Path(__file__).stem))

import tyro
from rich.table import Table

from fastweights.host import (
    Console,
    ProgressDisplay,
    Stages,
    one_line_errors,
    restoring_torch,
    typed_command,
    user_input,
)
from fastweights.kernels import restoring_backend
from fastweights.launch.cli.parser import typed_options
from fastweights.records import resolved_run
from fastweights.training import (
    Hashed,
    Named,
    assembled,
    check_module,
    first_updates,
    hash_conditions,
    plan_for,
    read_hashes_of,
    replay_updates,
    replay_verdict,
    take_weights,
    with_full_path,
    with_init_from,
)

DIFFERENT = 1  # exit code


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(Named):
    """Re-run the first updates of a lockstep run and compare the hashes of its rollouts and
    weights.

    Reads RUN/meta.json and RUN/hashes.csv; writes nothing. Exit code 0: identical; 1: different.
    """

    run: Annotated[Path, tyro.conf.arg(metavar="RUN"), tyro.conf.Positional]
    """Run folder of an agent."""
    updates: int | None = None
    """Number of updates to re-run, counted from the first (default: all recorded)."""
    init_from: Path | None = None
    """The run whose weights this run began with, if it did (its own option --init-from)."""


@one_line_errors
@restoring_backend()
@restoring_torch()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    asked = typed_options(ReplayOptions, arguments, prog=typed_command("replay"))
    with user_input():
        run = resolved_run(asked.run)
        asked.import_cores()
        recorded, options = read_hashes_of(run)
        check_module(options, asked.env, run)
        asked.check({run: options})
        options = with_full_path(with_init_from(options, asked.init_from, run))
        expected = first_updates(recorded, asked.updates)
        options, plan = plan_for(options)
    stages = Stages("learner")
    found = []
    with assembled(options, plan, stages) as (network, source):
        take_weights(network, options)
        now = hash_conditions(options, plan.learner, network)
        with (
            ProgressDisplay(len(expected), unit="updates") as display,
            closing(replay_updates(options, network, source, stages)) as updates,
        ):
            for one in islice(updates, len(expected)):
                found.append(one)
                display.update(one.update, {})
    Console().print(_table(expected, found))
    was = recorded.conditions
    changes = [f"{n} {now[n]} (was {was[n]})" for n in now if n in was and was[n] != now[n]]
    print(replay_verdict(expected, found, changes))
    return 0 if found == expected else DIFFERENT


def _table(expected: Sequence[Hashed], found: Sequence[Hashed]) -> Table:
    table = Table("update", "agent steps", "rollout", "weights")
    for old, new in zip(expected, found, strict=True):
        same = ("same" if old[i] == new[i] else "differs" for i in (2, 3))
        table.add_row(str(old.update), f"{old.step:,}", *same)
    return table
