"""Options of the command of formal languages, besides those of all sequence tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastweights.experiments import (
    Question,
    make_language_figure,
    search_settings,
    show_trace,
    summarise_languages,
)
from fastweights.host import UserError, flags
from fastweights.launch.cli.parser import changed_fields
from fastweights.launch.cli.sequence_command import SequenceCommand
from fastweights.records import resolved_run

_OF_RUNS = ("device", "kernels")
_WHERE = ("seeds", "jobs", "epochs_at_most", "runs", "out", "preset")
_NO_TRAINING = ("resume", "statistics", "export")
# What may be given besides each flag that does something else than training.
_TAKEN = {
    "figure": (*_OF_RUNS, "only", *_WHERE),
    "summary": (*_OF_RUNS, "only", "settings", *_WHERE),
    "search": _WHERE,  # and the options of training
    "trace": ("trained",),
}


@dataclass(frozen=True, kw_only=True)
class LanguageCommand(SequenceCommand[Question]):
    """Train a memory on a formal language, or rebuild a table of the papers.

    Options start from a preset and are changed one by one.
    """

    task: str = "parity"
    """Formal language."""
    figure: int | None = None
    """Number of the figure to draw: 8 (Merrill et al. 2020); --only and --seeds select runs."""
    summary: bool = False
    """Show which memory solves which language; --settings selects languages, --only memories."""
    search: str | None = None
    """Train with settings of the published search space and compare them: grid (all) or random."""
    trials: int = 20
    """Number of settings of --search random."""
    trained: Path | None = None
    """Run folder whose memory --trace draws."""
    trace: str | None = None
    """String, such as 0110, for which to draw the part of the memory that follows the language's
    machine, beside the machine."""

    def instead(self, given: Mapping[str, Any]) -> int | None:
        """Do what was asked for instead of training; see `SequenceCommand.instead`."""
        self._check(given)
        changes = {name: given[name] for name in _OF_RUNS if name in given}
        if self.figure is not None:
            return make_language_figure(self.figure, self.preset, self.of_table, changes)
        if self.summary:
            return summarise_languages(self.preset, self.of_table, changes)
        if self.search is not None:
            return search_settings(self.search, self.trials, self.run, self.preset, self.of_table)
        if self.trace is not None:
            return show_trace(resolved_run(self.trained), self.run.task.trained_by(), self.trace)
        return None

    def _check(self, given: Mapping[str, Any]) -> None:
        """Raise a one-line `UserError` for options that contradict or would change nothing."""
        wanted = [name for name in (*_TAKEN, "table") if getattr(self, name) not in (None, False)]
        if len(wanted) > 1:
            raise UserError(f"--{wanted[0]} and --{wanted[1]} exclude each other")
        if bool(self.trained) != (self.trace is not None):
            raise UserError("--trace STRING and --trained RUN go together")
        if self.trials != type(self).trials and self.search != "random":
            raise UserError("--trials is the number of settings of --search random: leave it out")
        if not wanted or wanted == ["table"]:
            return
        (action,) = wanted
        named = [name for name in given if action != "search" or name in _NO_TRAINING]
        named += changed_fields(self.of_table) + ["preset"] * (self.preset != type(self).preset)
        if action == "trace" and ":" in given.get("core", ""):
            named.remove("core")  # the module of the run's memory
        if refused := [name for name in named if name not in _TAKEN[action]]:
            raise UserError(
                f"{flags(refused)} cannot go with --{action}, which takes "
                f"{flags(_TAKEN[action])}{' and training options' * (action == 'search')}"
            )
