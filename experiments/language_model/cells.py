"""Runs of the language models' command in a grid."""

from dataclasses import dataclass, replace
from typing import Any

from fastweights.experiments.grid import Run, as_flags, read_result
from fastweights.experiments.language_model.options import (
    LANGUAGE_COMMAND,
    LanguageOptions,
)
from fastweights.experiments.learning import RESULT_FILE
from fastweights.experiments.learning_options import differing_learning_options
from fastweights.experiments.sequence_cells import recorded
from fastweights.host import command_argv
from fastweights.tasks.language_model import Measure


@dataclass(frozen=True)
class LanguageRun(Run):
    """The training of one language model; `options` have its folder and name."""

    options: LanguageOptions

    @property
    def finished(self) -> bool:
        return (self.path / RESULT_FILE).exists()

    def start(self) -> list[str]:
        plain = replace(self.options, num_threads=1).flat()
        del plain["task_name"]
        return [*command_argv(LANGUAGE_COMMAND), *as_flags(plain)]

    def go_on(self) -> list[str]:
        own = {name: getattr(self.options, name) for name in ("data", "cache", "device")}
        where = {name: value for name, value in own.items() if value is not None}
        return [
            *command_argv(LANGUAGE_COMMAND),
            *as_flags({"resume": self.path, "num_threads": 1} | where),
        ]

    def differences(self, stored: dict[str, Any]) -> list[str]:
        return differing_learning_options(LanguageOptions.from_dict(stored), self.options)

    def result(self) -> dict[str, Any]:
        """Return the result with the run's origin; see `recorded`."""
        return recorded(self.path, read_result(self.path / RESULT_FILE, _measured))


def _measured(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result after a check that every measure is a number."""
    for split in ("valid", "test"):
        for value in Measure(**result[split]):
            float(value)
    return result
