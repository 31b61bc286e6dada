"""The `--help` screen of the sequence-task commands."""

from collections.abc import Mapping
from dataclasses import fields

from fastweights.cores import CORES, core_defaults
from fastweights.experiments import SequenceTableOptions, presets_of
from fastweights.host import HelpLayout
from fastweights.kernels import BACKENDS
from fastweights.tasks import Task, TrainerConfig

# Options that `--help` describes after the task's own; the chosen core's options follow.
FIRST = ("core", "preset", "epochs", "seed", "resume", "table", "statistics", "trace")
# Grouped by the folder that uses them; options not listed here belong to the run.
GROUPS = {
    "Memory (cores/)": ("core", "core_*", "embedding", "decoder", "dropout", "kernels"),
    "Sequences and trainer (tasks/)": (
        *("train_size", "valid_size", "test_size", "test_lengths", "length_size", "data_seed"),
        "legacy_selection",
        *(field.name for field in fields(TrainerConfig)),
    ),
    "Tables (experiments/)": (
        *("table", "figure", "summary", "search", "trials"),
        *(field.name for field in fields(SequenceTableOptions)),
    ),
    "Run folder (records/)": (
        *("resume", "trained", "trace", "xpid", "savedir"),
        *("data", "files", "export", "checkpoint_minutes"),
    ),
    "Run": ("preset", "seed", "statistics"),
}
HELP = """{description}

For example:
    {command} {small}
    {command} {example}
    {command} --resume runs/latest
    {command} --table {table} --preset small      all models, three seeds
    {command} --statistics                  statistics of the sequences

A preset sets all options; flags override individual ones. See docs/tasks.md."""


def layout(task: type[Task], core: str, tasks: Mapping[str, type[Task]]) -> HelpLayout:
    """Return the help screen of a command that trains on `tasks`; `task` is chosen."""
    own = core_defaults(core) if core in CORES else {}
    of_task = [field.name for field in fields(task)]
    groups = {f"Task {task.name} (tasks/)": ["task", *of_task]} | GROUPS
    values = {"core": CORES, "preset": presets_of(task), "kernels": BACKENDS, "task": tasks}
    described = ("task", *of_task, *FIRST, *own)
    return HelpLayout(described=described, groups=groups, values=values, defaults=own)
