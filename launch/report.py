"""Report on one run or several, as one HTML page and as Markdown.

For example: `python launch/report.py RUN...`.
"""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host import run_command

    sys.path.pop(0)  # the folders beside the package are not packages
    sys.exit(run_command(Path(__file__).stem))

import tyro

from fastweights.cores import CORES
from fastweights.evaluation.reports import (
    FIGURES,
    grouped_runs,
    open_runs,
    report_sections,
    write_report,
)
from fastweights.host import (
    Console,
    make_folder,
    one_line,
    one_line_errors,
    one_of,
    resolved,
    typed_command,
    user_input,
    without_new_folders,
)
from fastweights.launch.cli.parser import typed_options


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Report on runs: learning curves, test scores, comparisons, options, throughput.

    Writes report.html (a single self-contained file) and the same report as report.md with figures.
    Runs that differ only in their seed, or in where and how they ran, share one curve with a band.
    Of several runs of one seed, the longest or newest counts.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders; the runs may still be training."""
    out: Path | None = None
    """Output folder (default: RUN/report; for several runs, `report` beside the first of them)."""
    compare: tuple[str, ...] = ()
    """Pairs of cores for relative improvements, such as rdn:lstm (default: the six pairs of Irie et
    al. 2021)."""
    title: str = "Fast-weight agents"
    """The report's title."""


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = typed_options(ReportOptions, arguments, prog=typed_command("report"))
    with user_input():
        if not options.runs:
            raise ValueError("give at least one run folder, such as runs/latest")
        runs = open_runs(options.runs)
        pairs = [_pair(text, {run.core for run in runs}) for text in options.compare]
    for warning in (warning for run in runs for warning in run.warnings):
        print(one_line(f"warning: {warning}"), file=sys.stderr)
    folder = _folder([run.path for run in runs], options.out)
    with without_new_folders(folder / FIGURES):
        make_folder(folder, "--out")
        blocks = report_sections(grouped_runs(runs), pairs, folder)
        pages = write_report(options.title, blocks, folder)
    for path in pages:
        Console().say(one_line(f"report: {path}"))
    return 0


def _pair(text: str, trained: Collection[str]) -> tuple[str, str]:
    """Return the two cores in `text`, known or from the runs; `my_memory:trace` is one name."""
    names = dict.fromkeys((*CORES, *trained))
    parts = text.split(":")
    ways = [(":".join(parts[:cut]), ":".join(parts[cut:])) for cut in range(1, len(parts))]
    known = [way for way in ways if {*way} <= names.keys()]
    pair = next(iter(known or ways), ("", ""))
    if pair[0] == pair[1]:
        raise ValueError(f"--compare takes pairs of different cores such as rdn:lstm, not {text!r}")
    for core in pair:
        one_of("core", core, names)
    return pair


def _folder(runs: Sequence[Path], out: Path | None) -> Path:
    if out is not None:
        return resolved(out)
    return (runs[0] if len(runs) == 1 else runs[0].parent) / "report"
