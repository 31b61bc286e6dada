"""Languages x memories on one page: which memory solves which language, ordered by class.

For one seed, a memory *solves* a language if every string in Bin0 and Bin1 is correct. It
*generalises* if the much longer strings of the test lengths are correct, too. It *fits* the
language if 99 % of Bin0 are correct, and *fails* otherwise. Theoretical results about these
memories are listed below the table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastweights.cores import CORES, is_named_by_size
from fastweights.evaluation import markdown_table, save_figure
from fastweights.experiments.formal_languages.matrix import matrix_figure
from fastweights.experiments.formal_languages.theory import said_of, sources
from fastweights.experiments.grid import Grid, cells, rebuild
from fastweights.experiments.rows import Row, rows_of
from fastweights.experiments.sequences.cells import SequenceRun
from fastweights.experiments.sequences.options import with_epochs_at_most
from fastweights.experiments.sequences.outcomes import best_baseline, is_solved
from fastweights.experiments.sequences.presets import sequence_preset
from fastweights.experiments.sequences.table import SequenceTableOptions, check_table
from fastweights.experiments.table import (
    Table,
    each_seed,
    interval,
    label,
    mean_and_std,
)
from fastweights.host import UserError, expanded, unknown_name, user_input, write_bytes, write_json
from fastweights.tasks import LANGUAGES

# Grazzi et al. 2025: writes that can negate stored values.
_REVERSING = {"core_feature_map": "silu_unit", "core_max_write_strength": 2}
# Memories whose options differ from the core's preset.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "delta_net_2": ("delta_net", _REVERSING),
    "gated_delta_net_2": ("gated_delta_net", _REVERSING),
}
FITS = 0.99  # share of Bin0
MEANINGS = {  # of outcomes, the best first
    "generalises": "generalises: much longer strings right, too",
    "solved": "solved: all of Bin0 and Bin1 right",
    "fits": f"fits: {100 * FITS:.0f} % of Bin0 right",
    "fails": "fails",
}
STATES = tuple(MEANINGS)


def memories() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return core and options by memory name; `_2` marks write strengths up to 2."""
    return {name: (name, {}) for name in CORES if not is_named_by_size(name)} | VARIANTS


def state(result: Mapping[str, Any]) -> str:
    """Return a run's outcome: generalises, solved, fits or fails."""
    if is_solved(result):
        longer = [row["sequence_accuracy"] == 1 for row in result["lengths"]]
        every = len(result["options"]["test_lengths"])  # attention is not measured at all of them
        return "generalises" if longer and len(longer) == every and all(longer) else "solved"
    return "fits" if result["bin0"]["sequence_accuracy"] >= FITS else "fails"


def summarise_languages(
    preset_name: str, asked: SequenceTableOptions, changes: Mapping[str, Any] | None = None
) -> int:
    """Run missing cells; write summary.md and .png (one row per memory), and all pairs.

    The files of the pairs are pairs.md, .csv, .json and .png; results.json has the runs.

    `asked.settings` are the languages, `asked.only` the memories; empty means all. `changes` are
    options for all runs that the preset does not set, such as the device.
    """
    check_table(asked)
    languages = _chosen("--settings", asked.settings, LANGUAGES)
    names = _chosen("--only", asked.only, memories())
    folder = expanded(asked.runs).resolve() / f"summary-{preset_name}{asked.shortened}"

    def run(language: str, memory: str, seed: int) -> SequenceRun:
        core, options = memories()[memory]
        with user_input():
            chosen = sequence_preset(preset_name, core, LANGUAGES[language]())
        chosen = replace(chosen, **options, **(changes or {}), seed=seed, savedir=folder)
        chosen = with_epochs_at_most(chosen, asked.epochs_at_most)
        return SequenceRun(replace(chosen, xpid=f"{language}-{memory}-seed{seed}"))

    axes = {"language": languages, "memory": names, "seed": asked.seeds}
    grid = Grid(f"languages and memories, preset {preset_name}", cells(run, **axes), folder)
    out = expanded(asked.out or folder).resolve()
    return rebuild(grid, partial(_write, grid, out), out, asked.jobs)


def _chosen(flag: str, asked: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    for name in asked:
        if name not in known:
            raise UserError(unknown_name(flag, name, known))
    return [name for name in known if name in (asked or known)]


def longer(result: Mapping[str, Any]) -> float:
    """Return the percentage of Bin1 strings that are correct."""
    return 100 * result["bin1"]["sequence_accuracy"]


def _write(grid: Grid, out: Path, failures: Mapping[str, str]) -> None:
    rows = rows_of(grid.cells, failures, longer)
    text = f"# {grid.title}\n\n{matrix(rows)}\n"
    write_bytes(out / "summary.md", text.encode())
    columns = {"class": lambda row: LANGUAGES[row.labels["language"]].family()}
    columns |= {"language": label("language"), "memory": label("memory", code=True)}
    columns |= {"bin1": mean_and_std, "95 % interval": interval, "each seed": each_seed}
    columns |= {"outcome": outcome, "best baseline": _baseline}
    write_json(out / "results.json", grid.results())
    shown = {"axis": "sequences of Bin1 right, percent", "panel": "language"}
    Table(columns=columns, title=grid.title, **shown).write(rows, out / "pairs")
    states = {_pair(row): worst(row) for row in rows if row.runs}
    save_figure(matrix_figure(rows, states, MEANINGS), out / "summary.png")
    print(text)


def matrix(rows: Sequence[Row]) -> str:
    """Return Markdown: one row per memory, one column per language, the seeds' outcomes in cells.

    The last row has the best baseline's percentage of Bin1. Theoretical results follow, one line
    per language, with the numbers of their sources.
    """
    found = {_pair(row): row for row in rows}
    languages, names = (
        list(dict.fromkeys(row.labels[n] for row in rows)) for n in ("language", "memory")
    )
    numbers = {source: place for place, source in enumerate(sources(languages, names), 1)}
    head = ["memory", *(LANGUAGES[language].title for language in languages)]
    kinds = ["", *(LANGUAGES[language].family() for language in languages)]
    lines = [[f"`{name}`", *(_shown(found[one, name]) for one in languages)] for name in names]
    baselines = {row.labels["language"]: _baseline(row) for row in rows if row.runs}
    lines.append(["best baseline", *(baselines.get(one, "") for one in languages)])
    said = {one: said_of(one, names, numbers) for one in languages}
    theories = [f"- {LANGUAGES[one].title}: {text}" for one, text in said.items() if text]
    below = [f"[{place}] {source}" for source, place in numbers.items()]
    parts = [markdown_table(head, [kinds, *lines])]
    if theories:
        parts += ["What theory says:", "\n".join(theories), *below]
    return "\n\n".join(parts)


def _pair(row: Row) -> tuple[str, str]:
    return row.labels["language"], row.labels["memory"]


def _shown(row: Row) -> str:
    """Return the outcome, and the percentage of Bin1 unless all seeds solve the language."""
    said = outcome(row)
    if row.mean is None or worst(row) in ("generalises", "solved"):
        return said
    return f"{said} ({row.mean:.1f})"


def _baseline(row: Row) -> str:
    """Return the best baseline's percentage of Bin1, the same for all seeds and memories."""
    results = [run.result() for run in row.runs.values()]
    return f"{100 * best_baseline(results[0], 'bin1')[0]:.1f}" if results else ""


def worst(row: Row) -> str:
    """Return the worst outcome over the seeds that have run."""
    return max((state(run.result()) for run in row.runs.values()), key=STATES.index)


def outcome(row: Row) -> str:
    """Return `solved 2, fails 1`: the number of seeds by outcome; no number if all agree."""
    states = [state(run.result()) for run in row.runs.values()] + ["failed"] * len(row.failed)
    counts = {name: states.count(name) for name in (*STATES, "failed") if name in states}
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} {count}" for name, count in counts.items())
