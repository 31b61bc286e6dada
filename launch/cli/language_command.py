"""What the command of formal languages has beside other sequence tasks' commands."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fastweights.experiments.language_figures import make_figure
from fastweights.experiments.language_search import search
from fastweights.experiments.language_summary import summarise
from fastweights.experiments.language_trace import trace, write_csv
from fastweights.experiments.sequence_options import Question
from fastweights.experiments.sequence_run import trained
from fastweights.host.errors import UserError, expanded, user_input
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
        asked = {name: getattr(self, name) for name in ("figure", "search", "trace")}
        wanted = [name for name, value in asked.items() if value is not None]
        wanted += ["summary"] * self.summary
        if len(wanted) > 1:
            raise UserError(f"--{wanted[0]} and --{wanted[1]} exclude each other")
        if bool(self.trained) != (self.trace is not None):
            raise UserError("--trace STRING and --trained RUN go together")
        if self.figure is not None:
            return make_figure(self.figure, self.preset, self.of_table)
        if self.summary:
            return summarise(self.preset, self.of_table)
        if self.search is not None:
            return search(self.search, self.trials, self.run, self.of_table)
        if self.trace is not None:
            return self._trace(expanded(self.trained), self.trace)
        return None

    def _trace(self, path: Path, text: str) -> int:
        # Matplotlib takes a second to import.
        from fastweights.experiments.language_pictures import draw_trace

        model, options = trained(path, self.run.task.trained_by())
        with user_input():
            found = trace(model, options, text)
        write_csv(found, path / "trace.csv")
        draw_trace(found, f"{options.core} on {options.task.title}", path / "trace.png")
        Console().print(
            f"{found.component} follows the machine: {100 * found.explained:.1f} % of its variance "
            f"lies between the machine's states\nwrong answers: {len(found.wrong)} of "
            f"{sum(one is not None for one in found.expected)}\n{path / 'trace.png'}\n"
            f"{path / 'trace.csv'}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return 0
