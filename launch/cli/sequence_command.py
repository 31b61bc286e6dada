"""The command line that all sequence tasks share: one model, a paper's table, or the data."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic

import tyro
from rich.console import Console
from rich.table import Table

from fastweights.cores import CORES
from fastweights.cores.options import core_defaults
from fastweights.experiments.sequence_data import sequences
from fastweights.experiments.sequence_figures import OF_CELLS
from fastweights.experiments.sequence_options import (
    PRESETS,
    Question,
    SequenceOptions,
    changes,
    check,
    differences,
    flat,
    preset,
)
from fastweights.experiments.sequence_run import RESULT, run, saved_options
from fastweights.experiments.sequence_table import TableOptions, make_table
from fastweights.host.commands import typed
from fastweights.host.errors import UserError, expanded, one_line_errors, user_input
from fastweights.host.help_screen import Layout
from fastweights.kernels import BACKENDS
from fastweights.launch.cli.parser import typed_options
from fastweights.tasks import Task
from fastweights.tasks.train import TrainerConfig


@dataclass(frozen=True, kw_only=True)
class SequenceCommand(Generic[Question]):
    """Train a memory on a sequence task, or rebuild a table of the paper.

    Options start from a preset and are changed one by one.
    """

    preset: str = "paper"
    """paper (as published) or small (minutes a model on two cores)."""
    resume: Path | None = None
    """A run folder to go on with; its options are kept."""
    statistics: bool = False
    """Show what the sequences are like beside the paper's, and stop."""
    table: int | None = None
    """A table of the paper to rebuild: every model and seed that is not there yet, then the table.
    """
    of_table: tyro.conf.OmitArgPrefixes[TableOptions]
    run: Annotated[SequenceOptions[Question], tyro.conf.arg(name="")]


# What `--help` describes, after the task's own options; the chosen core's options follow.
FIRST = ("core", "preset", "epochs", "seed", "resume", "table", "statistics")
# By the folder that uses them; an option that is not here is about the run.
GROUPS = {
    "Memory (cores/)": ("core", "core_*", "embedding", "dropout", "kernels"),
    "Sequences and trainer (tasks/)": (
        *("train_size", "valid_size", "test_size", "data_seed"),
        *(field.name for field in fields(TrainerConfig)),
    ),
    "Tables (experiments/)": ("table", *(field.name for field in fields(TableOptions))),
    "Run folder (records/)": ("resume", "xpid", "savedir", "data", "checkpoint_minutes"),
    "Run": ("preset", "seed", "statistics"),
}
HELP = """{description}

For example:
    {command} --preset small --core rdn     minutes on two cores
    {command} {example}
    {command} --resume runs/latest
    {command} --table 2 --preset small      all models, three seeds
    {command} --statistics                  what the sequences are like

Options start from a preset and are changed one by one; docs/tasks.md has more."""


def command(task: type[Task], description: str, example: str) -> Callable[..., int]:
    """The command of a task: parses words (or this process's), returns the exit code.

    Its `--help` begins with `description` and has `example` among others.
    """
    text = partial(HELP.format, description=description, example=example)
    return one_line_errors(partial(_command, task, text))


def _command(
    task: type[Task], text: Callable[..., str], arguments: Sequence[str] | None = None
) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    with user_input():
        known = _peek(arguments)
        if known.resume and known.preset:
            raise ValueError("--preset and --resume contradict: a resumed run keeps its options")
        saved = saved_options(known.resume, task.name) if known.resume else None
        name = known.preset or "paper"
        defaults = saved or preset(name, known.core or "delta_net", task())
        asked = typed_options(
            SequenceCommand[task],
            arguments,
            _layout(task, defaults.core),
            default=SequenceCommand[task](run=defaults, of_table=TableOptions()),
            prog=typed(task.name),
            description=text(command=typed(task.name)),
        )
        check(asked.run)
    if asked.table is not None:
        of_cells = _of_cells(asked, known, preset(name, "delta_net", task()))
        return make_table(task, asked.table, name, asked.of_table, of_cells)
    _check_no_table(asked.of_table)
    if asked.statistics:
        return _show_statistics(asked.run)
    if saved:
        _check_same(asked.resume, saved, asked.run)
    return run(asked.run, asked.resume)


def _layout(task: type[Task], core: str) -> Layout:
    own = core_defaults(core) if core in CORES else {}
    of_task = [field.name for field in fields(task)]
    groups = {f"Task {task.name} (tasks/)": of_task} | GROUPS
    values = {"core": CORES, "preset": PRESETS, "kernels": BACKENDS}
    described = (*of_task, *FIRST, *own)
    return Layout(described=described, groups=groups, values=values, defaults=own)


def _peek(arguments: Sequence[str]) -> argparse.Namespace:
    """The options that decide what the others' defaults are."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    early.add_argument("--preset")
    early.add_argument("--core")
    early.add_argument("--resume", type=Path)
    try:
        return early.parse_known_args(arguments)[0]
    except argparse.ArgumentError:  # a flag without its value: tyro says it better
        return early.parse_args([])


def _of_cells(
    asked: SequenceCommand, known: argparse.Namespace, default: SequenceOptions
) -> dict[str, Any]:
    """What a table's cells take from the command line. Refuses what they do not."""
    given = changes(default, replace(asked.run, core=default.core) if known.core else asked.run)
    others = {"core": known.core, "resume": known.resume, "statistics": asked.statistics}
    refused = [name for name, value in others.items() if value]
    if not refused:
        refused = [name for name in given if name not in OF_CELLS]
    if refused:
        taken = _flags([name for name in OF_CELLS if name in flat(default)])
        raise UserError(
            f"{_flags(refused)} cannot go with --table, whose runs have the preset's options; "
            f"they take {taken}, and --only, --settings, --seeds and --runs say which and where"
        )
    if "data" in given:
        given["data"] = expanded(given["data"]).resolve()
    return given


def _check_no_table(of_table: TableOptions) -> None:
    given = [f.name for f in fields(of_table) if getattr(of_table, f.name) != f.default]
    if given:
        raise UserError(f"{_flags(given)} chooses what --table runs: add --table, or leave it out")


def _flags(names: Sequence[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _check_same(path: Path, saved: SequenceOptions, asked: SequenceOptions) -> None:
    path = expanded(path)
    if changes := differences(saved, asked):
        raise UserError(
            f"a resumed run keeps what it computes, so these contradict --resume: "
            f"{', '.join(changes)}; leave them out, or start a new run"
        )
    if (path / RESULT).exists():
        raise UserError(f"{path} has finished: its result is in {path / RESULT}; start a new run")


def _show_statistics(options: SequenceOptions) -> int:
    table = Table("", title=f"{options.task}, {options.train_size:,} sequences to learn from")
    for column in ("here", "paper"):
        table.add_column(column, justify="right")
    for statistic in options.task.statistics(sequences(options)["train"].samples()):
        table.add_row(*statistic)
    Console().print(table)
    return 0
