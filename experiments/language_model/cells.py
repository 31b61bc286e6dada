"""Runs of the language models' command in a grid."""

from dataclasses import dataclass, replace
from typing import Any

from fastweights.experiments.grid import Run, as_flags, read_result
from fastweights.experiments.language_model.options import (
    COMMAND,
    LanguageOptions,
)
from fastweights.experiments.learning import RESULT
from fastweights.experiments.learning_options import differences
from fastweights.experiments.sequence_cells import recorded
from fastweights.host.commands import process
from fastweights.tasks.language_model.evaluation import Measure


@dataclass(frozen=True)
class LanguageRun(Run):
    """The training of one language model; `options` have its folder and name."""

    options: LanguageOptions

    @property
    def finished(self) -> bool:
        return (self.path / RESULT).exists()

    def start(self) -> list[str]:
        plain = replace(self.options, num_threads=1).flat()
        del plain["task_name"]
        return [*process(COMMAND), *as_flags(plain)]

    def go_on(self) -> list[str]:
        own = {name: getattr(self.options, name) for name in ("data", "cache", "device")}
        where = {name: value for name, value in own.items() if value is not None}
        return [*process(COMMAND), *as_flags({"resume": self.path, "num_threads": 1} | where)]

    def differences(self, stored: dict[str, Any]) -> list[str]:
        return differences(LanguageOptions.from_dict(stored), self.options)

    def result(self) -> dict[str, Any]:
        """Return the result with the run's origin; see `recorded`."""
        return recorded(self.path, read_result(self.path / RESULT, _measured))


def _measured(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result after a check that every measure is a number."""
    for split in ("valid", "test"):
        for value in Measure(**result[split]):
            float(value)
    return result
