"""Runs of the sequence tasks' commands in a grid: models, each trained and then measured."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fastweights.cores import core_kind
from fastweights.experiments.grid import Run, as_flags, read_result
from fastweights.experiments.learning import RESULT_FILE
from fastweights.experiments.learning_options import differing_learning_options
from fastweights.experiments.sequence_data import sequences_of
from fastweights.experiments.sequence_options import SequenceOptions
from fastweights.host import command_argv
from fastweights.records import read_meta
from fastweights.tasks import Result

_FOLDERS = ("savedir", "data", "cache")


@dataclass(frozen=True)
class SequenceRun(Run):
    """The training of one model on a sequence task; `options` have its folder and name."""

    options: SequenceOptions

    @property
    def finished(self) -> bool:
        return (self.path / RESULT_FILE).exists()

    def start(self) -> list[str]:
        return [
            *command_argv(self.options.task.trained_by()),
            *flags(replace(self.options, num_threads=1)),
        ]

    def go_on(self) -> list[str]:
        where = {"resume": self.path, "num_threads": 1, "device": self.options.device}
        data = {"data": self.options.data} if self.options.data else {}
        return [*command_argv(self.options.task.trained_by()), *as_flags(where | data)]

    def differences(self, stored: dict[str, Any]) -> list[str]:
        return differing_learning_options(SequenceOptions.from_dict(stored), self._with_window())

    def result(self) -> dict[str, Any]:
        """Return the result with the run's origin; see `recorded`."""
        splits = self.options.task.splits[1:]
        return recorded(self.path, read_result(self.path / RESULT_FILE, partial(_measured, splits)))

    def _with_window(self) -> SequenceOptions:
        """Return the options as a run stores them, with attention over the longest sequence."""
        if not core_kind(self.options.core).attends:
            return self.options
        drawn = sequences_of(self.options).values()
        return self.options.reaching(max(int(split.lengths.max()) for split in drawn))


def flags(options: SequenceOptions) -> list[str]:
    """Return the command line that gives these options under any preset."""
    plain = options.flat()
    name = plain.pop("task_name")
    which = {"task": name} if options.task.command else {}
    return as_flags(which | plain)


def recorded(path: Path, measured: dict[str, Any]) -> dict[str, Any]:
    """Return the measurements of the run at `path`, its commit, its seed and its options."""
    meta = read_meta(path)
    commit, own = (meta.get("git") or {}).get("commit"), meta["args"]
    return measured | {"commit": commit, "seed": own["seed"], "options": without_folders(own)}


def without_folders(plain: dict[str, Any]) -> dict[str, Any]:
    """Return a run's plain options without local folders."""
    return {name: plain[name] for name in plain if name not in _FOLDERS}


def _measured(splits: Sequence[str], result: dict[str, Any]) -> dict[str, Any]:
    """Return the result after a check that every measure is a number."""
    for split, measure in itertools.product(splits, Result._fields):
        float(result[split][measure])
    return result
