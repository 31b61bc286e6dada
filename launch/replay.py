"""Re-run the first updates of a lockstep run and check that they are bit-identical.

For example: `python launch/replay.py RUN`.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host.waiting import sleep_while_waiting

    sys.path.pop(0)  # the folders beside the package are not packages
    sleep_while_waiting()  # torch is not loaded yet

import tyro
from rich.console import Console
from rich.table import Table

from fastweights.agents.network import Network
from fastweights.host.commands import typed
from fastweights.host.devices import choose_device
from fastweights.host.errors import UserError, expanded, one_line_errors, user_input
from fastweights.host.progress import Display
from fastweights.host.stages import Stages
from fastweights.launch.cli.parser import typed_options
from fastweights.records.metrics import Metrics
from fastweights.records.run_folder import read_meta
from fastweights.training.assembly import build, plan_for
from fastweights.training.checks import check
from fastweights.training.hashes import Hashed, Hashes, conditions, hashed, read_hashes
from fastweights.training.loop import Training
from fastweights.training.options import RunOptions
from fastweights.training.saved_agent import check_game, check_module
from fastweights.training.schedules.experience import Source

DIFFERENT = 1  # exit code


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """Run the first updates of a lockstep run again, and compare hashes of what it learned from
    and of its weights.

    Reads RUN/meta.json and RUN/hashes.csv, and writes nothing. Exit code 0: identical, 1: not.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder of an agent."""
    updates: int | None = None
    """So many of the first updates (default: all that were recorded)."""
    env: str | None = None
    """The game again, where it brings a module of its own (my_module:MyGame-v0): it is imported."""


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    asked = typed_options(ReplayOptions, arguments, prog=typed("replay"))
    with user_input():
        run = expanded(asked.run)
        recorded, options = read_hashes_of(run)
        check_module(options, asked.env, run)
        check_game(options, asked.env, run)
        expected = _first(recorded, asked.updates)
        options, plan = plan_for(options)
        environments, network = build(options, plan)
    stages = Stages("learner")
    source = plan.source(network, environments, 0, stages)
    now = conditions(plan.learner)
    found = []
    with (
        Display(len(expected), unit="updates") as display,
        closing(replayed(options, network, source, stages)) as updates,
    ):
        for one in islice(updates, len(expected)):
            found.append(one)
            display.update(one.update, {})
    Console().print(_table(expected, found))
    was = recorded.conditions
    changes = [f"{n} {now[n]} (was {was[n]})" for n in now if n in was and was[n] != now[n]]
    print(_verdict(expected, found, changes))
    return 0 if found == expected else DIFFERENT


def read_hashes_of(run: Path) -> tuple[Hashes, RunOptions]:
    """What the run in folder `run` recorded, and its options, with as many threads as it had.

    Raises `ValueError`, one line, for what cannot be replayed.
    """
    plain = read_meta(run).get("args")
    if isinstance(plain, dict) and (task := plain.get("task_name")):
        raise UserError(f"{run} is a run of {task}, not of an agent: those alone can be replayed")
    try:
        options = RunOptions.from_dict(plain)
    except (TypeError, ValueError) as error:
        raise UserError(f"{run} is not a run of this version of the program: {error}") from error
    check(options)
    if options.schedule == "asynchronous":
        raise UserError(f"{run} is asynchronous: its rollouts' order is never the same twice")
    hashes = read_hashes(run)
    try:
        threads = int(hashes.conditions["threads"])
    except (KeyError, ValueError) as error:
        raise UserError(f"the hashes of {run} do not say how many threads it had") from error
    graphs = options.cuda_graphs and choose_device(options.device).type == "cuda"
    same = {"num_threads": threads, "schedule": "lockstep", "cuda_graphs": graphs}
    return hashes, replace(options, **same)


def replayed(
    options: RunOptions, network: Network, source: Source, stages: Stages
) -> Iterator[Hashed]:
    """The run's updates from the first on, without end; leaves no file behind."""
    found: list[Hashed] = []
    training = Training(
        options,
        network,
        source,
        Metrics(lambda row: None),
        stages,
        record=lambda rollout, learner: found.append(hashed(rollout, learner)),
    )
    with closing(training.rows()) as rows:
        for _ in rows:
            yield found.pop()


def _first(recorded: Hashes, count: int | None) -> list[Hashed]:
    known = len(recorded.updates)
    if count is not None and not 1 <= count <= known:
        raise ValueError(f"--updates must lie in [1, {known}], what was recorded, not {count}")
    return list(recorded.updates[:count])


def _table(expected: Sequence[Hashed], found: Sequence[Hashed]) -> Table:
    table = Table("update", "agent steps", "rollout", "weights")
    for old, new in zip(expected, found, strict=True):
        same = ("same" if old[i] == new[i] else "differs" for i in (2, 3))
        table.add_row(str(old.update), f"{old.step:,}", *same)
    return table


def _verdict(expected: Sequence[Hashed], found: Sequence[Hashed], changes: list[str]) -> str:
    pairs = list(zip(expected, found, strict=True))
    differing = next(((old, new) for old, new in pairs if old != new), None)
    if differing is None:
        return f"identical: {len(expected)} updates, {expected[-1].step:,} agent steps"
    old, new = differing
    names = (
        name for name in ("step", "rollout", "weights") if getattr(old, name) != getattr(new, name)
    )
    return f"differs first at update {old.update}, in {' and '.join(names)}; {_reasons(changes)}"


def _reasons(changes: list[str]) -> str:
    if changes:
        return f"known reasons: {'; '.join(changes)}"
    return (
        "no known reason: processor, device, threads, torch, kernels, compiler and code are as "
        "recorded, so the run's options or hashes were changed, or the program is not reproducible"
    )


if __name__ == "__main__":
    sys.exit(main())
