"""Options of the command of formal languages, besides those of all sequence tasks."""

from dataclasses import dataclass
from pathlib import Path

from fastweights.experiments import (
    Question,
    make_language_figure,
    search_settings,
    show_trace,
    summarise_languages,
)
from fastweights.host import UserError, expanded
from fastweights.launch.cli.sequence_command import SequenceCommand


@dataclass(frozen=True, kw_only=True)
class LanguageCommand(SequenceCommand[Question]):
    """Train a memory on a formal language, or rebuild a table of the papers.

    Options start from a preset and are changed one by one.
    """

    task: str = "parity"
    """Language: parity, aa, abab, a_n_b_n, ...; an unknown one lists them all."""
    figure: int | None = None
    """A figure to rebuild: 8, of Merrill et al. 2020; --only, --seeds and others as for --table."""
    summary: bool = False
    """Every language and every memory: which one solves which; --settings names languages, --only
    memories."""
    search: str | None = None
    """Train with settings of the published search space, and compare: grid, or random."""
    trials: int = 20
    """--search random: number of settings."""
    trained: Path | None = None
    """A run folder to look into, with --trace."""
    trace: str | None = None
    """A string, for example 0110: draw the part of the memory that follows the language's machine,
    position by position, beside the machine."""

    def instead(self) -> int | None:
        """Do what was asked for instead of training and return the exit code; None for training."""
        asked = {name: getattr(self, name) for name in ("figure", "search", "trace")}
        wanted = [name for name, value in asked.items() if value is not None]
        wanted += ["summary"] * self.summary
        if len(wanted) > 1:
            raise UserError(f"--{wanted[0]} and --{wanted[1]} exclude each other")
        if bool(self.trained) != (self.trace is not None):
            raise UserError("--trace STRING and --trained RUN go together")
        if self.figure is not None:
            return make_language_figure(self.figure, self.preset, self.of_table)
        if self.summary:
            return summarise_languages(self.preset, self.of_table)
        if self.search is not None:
            return search_settings(self.search, self.trials, self.run, self.preset, self.of_table)
        if self.trace is not None:
            return show_trace(expanded(self.trained), self.run.task.trained_by(), self.trace)
        return None
