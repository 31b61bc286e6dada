"""Options of the formal-language command, in addition to those of all sequence tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

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
# Options allowed with each flag that replaces training by something else.
_TAKEN = {
    "figure": (*_OF_RUNS, "only", *_WHERE),
    "summary": (*_OF_RUNS, "only", "settings", *_WHERE),
    "search": _WHERE,  # and training options
    "trace": ("trained",),
}


@dataclass(frozen=True, kw_only=True)
class LanguageCommand(SequenceCommand[Question]):
    """Train a memory on a formal language, or rebuild a table from the papers.

    A preset sets all options; flags override individual ones.
    """

    of_runs: ClassVar[str] = "--table, --figure, --summary or --search"

    task: str = "parity"
    """Formal language."""
    figure: int | None = None
    """Number of the figure to draw: 8 (of Merrill et al. 2020); --only and --seeds select runs."""
    summary: bool = False
    """Show which memories solve which languages; --settings selects languages, --only memories."""
    search: str | None = None
    """Train and compare settings from the published search space: grid (all of them) or random."""
    trials: int = 20
    """Number of settings for --search random."""
    trained: Path | None = None
    """Run folder of the trained memory for --trace."""
    trace: str | None = None
    """Input string, such as 0110: plot how the memory tracks the states of the language's
    automaton."""

    def instead(self, given: Mapping[str, Any]) -> int | None:
        """Do the requested task instead of training; see `SequenceCommand.instead`."""
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
        """Raise a one-line `UserError` for options that conflict or would have no effect."""
        wanted = [name for name in (*_TAKEN, "table") if getattr(self, name) not in (None, False)]
        if len(wanted) > 1:
            raise UserError(f"--{wanted[0]} and --{wanted[1]} cannot be used together")
        if bool(self.trained) != (self.trace is not None):
            raise UserError("--trace STRING and --trained RUN must be used together")
        if self.trials != type(self).trials and self.search != "random":
            raise UserError("--trials needs --search random: add it, or leave --trials out")
        if not wanted or wanted == ["table"]:
            return
        (action,) = wanted
        named = [name for name in given if action != "search" or name in _NO_TRAINING]
        named += changed_fields(self.of_table) + ["preset"] * (self.preset != type(self).preset)
        if action == "trace" and ":" in given.get("core", ""):
            named.remove("core")  # the module of the run's memory
        if refused := [name for name in named if name not in _TAKEN[action]]:
            raise UserError(
                f"{flags(refused)} cannot be used with --{action}, which takes "
                f"{flags(_TAKEN[action])}{' and training options' * (action == 'search')}"
            )
