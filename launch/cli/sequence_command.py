"""The command line that all sequence tasks share: one model, a paper's table, or the data."""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic

import tyro

from fastweights.cores import import_core
from fastweights.experiments import (
    RESULT_FILE,
    Question,
    SequenceOptions,
    SequenceTableOptions,
    cell_options,
    changed_learning_options,
    check_own_options,
    differing_learning_options,
    export_sequences,
    make_sequence_table,
    run_sequence_task,
    saved_sequence_options,
    sequence_preset,
    statistics_table,
    with_files,
)
from fastweights.host import (
    Console,
    UserError,
    check_kept,
    expanded,
    flags,
    one_line_errors,
    typed_command,
    unknown_name,
    user_input,
)
from fastweights.launch.cli.parser import check_unchanged, early_options, typed_options
from fastweights.launch.cli.sequence_help import HELP, layout
from fastweights.records import check_stays, resolved_run
from fastweights.tasks import Task


@dataclass(frozen=True, kw_only=True)
class SequenceCommand(Generic[Question]):
    """Train a memory on a sequence task, or rebuild a table from the paper.

    A preset sets all options; flags override individual ones.
    """

    preset: str = "paper"
    """Set of options: paper (as published) or small (minutes per model on two CPU cores)."""
    resume: Path | None = None
    """Run folder to resume; its options are kept."""
    statistics: bool = False
    """Show statistics of the sequences next to the paper's, then exit."""
    export: Path | None = None
    """Write the sequences to this folder as token files (train.src, train.tgt, ...), then exit."""
    table: int | None = None
    """Number of the paper's table to write, after training any missing runs: 2, 5 or 6 for
    code_execution, 2 or 7 for list_ops, 1 or 2 for formal_language."""
    of_table: tyro.conf.OmitArgPrefixes[SequenceTableOptions]
    run: Annotated[SequenceOptions[Question], tyro.conf.arg(name="")]

    of_runs: ClassVar[str] = "--table"  # options that train several runs

    def instead(self, given: Mapping[str, Any]) -> int | None:
        """Do the requested task instead of training and return the exit code; None to train.

        `given`: the training options that were given, by flag name.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class Family:
    """The tasks of one command, and its `--help` text."""

    tasks: Mapping[str, type[Task]]
    description: str
    example: str
    small: str = "--preset small --core rdn     minutes on two cores"
    table: int = 2
    kind: type[SequenceCommand] = SequenceCommand

    @property
    def command(self) -> str:
        """The command that trains on the tasks."""
        return self._first.trained_by()

    @property
    def _first(self) -> type[Task]:
        return next(iter(self.tasks.values()))

    def task(self, name: str | None) -> type[Task]:
        """Return the task of this name, by default the first; `ValueError` for an unknown name."""
        if name is not None and name not in self.tasks:
            raise ValueError(unknown_name("task", name, self.tasks))
        return self.tasks[name] if name else self._first

    def help(self) -> str:
        """Return the text of `--help`."""
        said = {name: getattr(self, name) for name in ("description", "example", "small", "table")}
        return HELP.format(**said, command=typed_command(self.command))


def command(task: type[Task], description: str, example: str) -> Callable[..., int]:
    """Return the command of one task, which parses arguments and returns the exit code.

    By default it parses this process's arguments. Its `--help` begins with `description` and
    includes `example`.
    """
    family = Family(tasks={task.name: task}, description=description, example=example)
    return command_of(family)


def command_of(family: Family) -> Callable[..., int]:
    """Return the command of several tasks; its option `--task` selects one."""
    return one_line_errors(partial(_command, family))


def _command(family: Family, arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    with user_input():
        known = _peek(arguments, family)
        if known.resume and known.preset is not None:
            raise ValueError("--preset contradicts --resume: a resumed run keeps its options")
        resume = known.resume and resolved_run(known.resume)
        saved = saved_sequence_options(resume, family.command) if resume else None
        task = type(saved.task) if saved and not known.task else family.task(known.task)
        check_own_options(arguments, task, family.tasks.values())
        name = "paper" if known.preset is None else known.preset
        defaults = saved or sequence_preset(name, known.core or "delta_net", task())
        if type(defaults.task) is not task:
            raise ValueError(f"--task {task.name} contradicts --resume: a run keeps its task")
        named = {"task": task.name} if len(family.tasks) > 1 else {}
        kind = family.kind[task]
        asked = typed_options(
            kind,
            arguments,
            layout(task, defaults.core, family.tasks),
            default=kind(run=defaults, of_table=SequenceTableOptions(), **named),
            prog=typed_command(family.command),
            description=family.help(),
        )
        asked = replace(asked, run=with_files(asked.run, defaults))
        asked.run.check()
        if saved:
            check_kept(differing_learning_options(saved, asked.run))
            check_stays(resume, saved, asked.run)
        if asked.statistics and asked.export:
            raise ValueError("--statistics and --export cannot be used together")
    given = _given(asked, known, defaults)
    if (code := asked.instead(given)) is not None:
        return code
    if asked.table is not None:
        of_cells = _of_cells(given, cell_options(defaults))
        return make_sequence_table(family.command, asked.table, name, asked.of_table, of_cells)
    check_unchanged(asked.of_table, asked.of_runs)
    if asked.statistics:
        Console().print(statistics_table(asked.run))
        return 0
    if asked.export:
        for path in export_sequences(asked.run, expanded(asked.export)):
            print(path)
        return 0
    if saved:
        _check_unfinished(resume)
    return run_sequence_task(asked.run, resume)


def _peek(arguments: Sequence[str], family: Family) -> Namespace:
    """Return the options that determine the others' defaults."""
    task = {"task": {}} if len(family.tasks) > 1 else {}
    known = early_options(arguments, preset={}, core={}, resume={"type": Path}, **task)
    import_core(known.core)
    return Namespace(**{"task": None} | vars(known))


def _given(asked: SequenceCommand, known: Namespace, usual: SequenceOptions) -> dict[str, Any]:
    """Return the training options that were given, by flag name; `usual`: the options without."""
    which = {"core": known.core, "task": known.task, "resume": known.resume}
    which |= {"statistics": asked.statistics, "export": asked.export}
    which = {name: value for name, value in which.items() if value}
    return which | changed_learning_options(usual, asked.run)


def _of_cells(given: Mapping[str, Any], taken: Sequence[str]) -> dict[str, Any]:
    """Return the options that a table's cells take from the command line; reject all others."""
    if refused := [name for name in given if name not in taken]:
        raise UserError(
            f"{flags(refused)} cannot be used with --table, whose runs use a preset's options; "
            f"it takes {flags(taken)}, and --only, --settings, --seeds and --runs"
        )
    if "data" in given:
        return {**given, "data": expanded(given["data"]).resolve()}
    return dict(given)


def _check_unfinished(path: Path) -> None:
    if (path / RESULT_FILE).exists():
        raise UserError(
            f"{path} has finished: its result is in {path / RESULT_FILE}; start a new run"
        )
