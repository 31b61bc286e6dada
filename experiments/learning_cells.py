"""Grid runs that are trained by `learning.py`: sequence tasks and language models."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastweights.cores import core_arguments
from fastweights.experiments.grid import Run, as_flags, read_result
from fastweights.experiments.learning import RESULT_FILE
from fastweights.experiments.learning_options import LearningOptions
from fastweights.host import command_argv
from fastweights.records import read_meta

_FOLDERS = ("savedir", "data", "cache")


class LearningRun(Run):
    """Abstract: the training of one model; `options` include its folder and name."""

    options: LearningOptions

    @property
    @abstractmethod
    def measures(self) -> Mapping[str, Sequence[str]]:
        """The names of a result's measurements, by split."""

    @property
    def finished(self) -> bool:
        return (self.path / RESULT_FILE).exists()

    def start(self) -> list[str]:
        return [*command_argv(self.options.command), *flags(replace(self.options, num_threads=1))]

    def go_on(self) -> list[str]:
        own = {name: getattr(self.options, name, None) for name in ("device", "data", "cache")}
        where = {name: value for name, value in own.items() if value is not None}
        resumed = {"resume": self.path, "num_threads": 1}
        words = [*as_flags(resumed | where), *core_arguments(self.options.core)]
        return [*command_argv(self.options.command), *words]

    def result(self) -> dict[str, Any]:
        """Return the result with the run's commit, seed and options."""
        measured = read_result(self.path / RESULT_FILE, self._measured)
        return measured | _origin(self.path)

    def _measured(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result, after checking that every measurement is a number."""
        for split, names in self.measures.items():
            for name in names:
                float(result[split][name])
        return result


def flags(options: LearningOptions) -> list[str]:
    """Return the command line that sets these options under any preset."""
    plain = options.flat()
    name = plain.pop("task_name")
    for implied in options.implied():
        del plain[implied]
    which = {"task": name} if name != options.command else {}
    return as_flags(which | plain)


def without_folders(plain: dict[str, Any]) -> dict[str, Any]:
    """Return a run's plain options without local folders."""
    return {name: plain[name] for name in plain if name not in _FOLDERS}


def _origin(path: Path) -> dict[str, Any]:
    meta = read_meta(path)
    commit, own = (meta.get("git") or {}).get("commit"), meta["args"]
    return {"commit": commit, "seed": own["seed"], "options": without_folders(own)}
