"""Tables of language models: runs in parallel, then our figures next to the paper's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from fastweights.evaluation import PublishedScore
from fastweights.experiments.grid import Cell, Grid, rebuild
from fastweights.experiments.language_model.cells import LanguageRun
from fastweights.experiments.language_model.context import context_effects
from fastweights.experiments.language_model.figures import Figure, figures
from fastweights.experiments.language_model.ngram import smoothed_ngrams
from fastweights.experiments.language_model.options import LanguageOptions
from fastweights.experiments.language_model.text import text_of
from fastweights.experiments.learning_options import check_seeds
from fastweights.experiments.rows import Row, rows_of
from fastweights.experiments.table import (
    Table,
    check_only,
    each_seed,
    interval,
    label,
    mean_and_deviation,
)
from fastweights.host import expanded, user_input, write_json
from fastweights.tasks.language_model import Corpus

LANGUAGE_CELL_OPTIONS = ("data", "cache", "device", "kernels", "precision")


@dataclass(frozen=True, kw_only=True)
class LanguageTableOptions:
    """Options of a table: its cells and folders."""

    seeds: tuple[int, ...] = (1, 2, 3)
    """--table: seeds per cell."""
    only: tuple[str, ...] = ()
    """--table: only these cores."""
    jobs: int = 0
    """--table: number of parallel runs, one thread each; 0: one per CPU core."""
    updates_at_most: int | None = None
    """--table: maximum number of updates per run, for a first look."""
    runs: Path = Path("runs/tables")
    """--table: folder for the runs."""
    out: Path | None = None
    """--table: folder for language_table_NUMBER.md, .csv, .json and .png (default: in --runs, by
    preset)."""


def make_language_table(
    table: str, preset_name: str, asked: LanguageTableOptions, changes: Mapping[str, Any]
) -> int:
    """Run missing runs and write the table; return the command's exit code.

    `changes`: changes to the preset for all runs, by `LANGUAGE_CELL_OPTIONS`. Failed runs are gaps.
    """
    folder = expanded(asked.runs).resolve() / f"language-{preset_name}{_shortened(asked)}"
    with user_input():
        wanted = _wanted(figures(table), asked)
        changes = {**changes, "cache": changes.get("cache") or folder / "texts"}
        options = [_options(figure, preset_name, asked, changes) for figure in wanted]
    text = text_of(options[0])  # errors in the text appear before hours of training
    # Seeds are the outer loop: an early stop leaves complete tables of fewer seeds.
    cells = [
        Cell({**_labels(figure), "seed": seed}, _run(own, figure, seed, folder, text))
        for seed in asked.seeds
        for figure, own in zip(wanted, options, strict=True)
    ]
    grid = Grid(f"Language models, table {table}, preset {preset_name}", cells, folder)
    out = expanded(asked.out or folder).resolve()
    path = out / f"language_table_{table}{_shortened(asked)}".replace("-", "_")
    write = partial(_write, grid, wanted, text, path, preset_name == "paper")
    return rebuild(grid, write, out, asked.jobs)


def _shortened(asked: LanguageTableOptions) -> str:
    return f"-{asked.updates_at_most}-updates" if asked.updates_at_most else ""


def _options(
    figure: Figure, preset_name: str, asked: LanguageTableOptions, changes: Mapping[str, Any]
) -> LanguageOptions:
    options = figure.options(preset_name, changes)
    most = asked.updates_at_most
    if most is None or most >= options.trainer.updates:
        return options
    warm_up = min(options.trainer.warm_up, most // 10)
    trainer = replace(options.trainer, updates=most, warm_up=warm_up)
    return replace(options, trainer=trainer)


def _run(
    options: LanguageOptions, figure: Figure, seed: int, folder: Path, text: Corpus
) -> LanguageRun:
    named = {"savedir": folder, "xpid": f"{figure.name}-seed{seed}"}
    return LanguageRun(replace(options, seed=seed, **named), text.digest)


def _labels(figure: Figure) -> dict[str, Any]:
    return {"model": figure.row, "core": figure.core, "context": figure.context}


def _wanted(everything: Sequence[Figure], asked: LanguageTableOptions) -> list[Figure]:
    check_seeds(asked.seeds)
    if asked.updates_at_most is not None and asked.updates_at_most < 1:
        raise ValueError(f"--updates-at-most must be at least 1, not {asked.updates_at_most}")
    cores = dict.fromkeys(figure.core for figure in everything)
    check_only(asked.only, cores)
    return [figure for figure in everything if figure.core in (asked.only or cores)]


def _write(
    grid: Grid,
    of_rows: Sequence[Figure],
    text: Corpus,
    path: Path,
    is_the_papers: bool,
    failures: Mapping[str, str],
) -> None:
    """Write the table; `is_the_papers`: figures are word perplexities, as in the paper."""
    measure, digits = ("perplexity", 1) if is_the_papers else ("bits_per_byte", 3)
    value = partial(_measure, "test", measure)
    found = zip(rows_of(grid.cells, failures, value), of_rows, strict=True)
    rows = [_beside_the_papers(row, figure, is_the_papers) for row, figure in found]
    unit = "perplexity" if is_the_papers else "bits per byte"
    of_split = {split: partial(_measure, split, measure) for split in ("valid", "test")}
    columns: dict[str, Callable[[Row], str]] = {
        "model": label("model"),
        "core": label("core", code=True),
        "context": label("context"),
        "parameters": _parameters,
        f"valid, {unit}": partial(_spread, of_split["valid"], digits),
        f"test, {unit}": partial(_spread, of_split["test"], digits),
        "test, 95 % interval": partial(interval, digits=digits),
        "test, each seed": partial(each_seed, digits=digits),
        "tokens/s": _speed,
    }
    if any(figure.published for figure in of_rows):
        columns["paper, valid / test"] = _paper
    ngrams = smoothed_ngrams(text)
    effects = list(context_effects(rows, unit))
    said = [each.said() for each in ngrams] + [each.said(digits) for each in effects]
    note = "\n".join([_note(rows, text), *said])
    extra: dict[str, Any] = {"text": text.digest, "ngrams": [each._asdict() for each in ngrams]}
    extra |= {"full_context": [each.plain() for each in effects], "runs": grid.results()}
    write_json(path.with_name(f"{path.name}_results.json"), extra)
    Table(columns=columns, unit=unit, title=grid.title, note=note).write(rows, path)


def _measure(split: str, measure: str, result: Mapping[str, Any]) -> float:
    return float(result[split][measure])


def _beside_the_papers(row: Row, figure: Figure, same_unit: bool) -> Row:
    details: dict[str, Any] = {"paper": dict(figure.published) if figure.published else None}
    if not (figure.published and same_unit):
        return replace(row, details=details)
    published = PublishedScore(figure.published["test"], None)  # one run
    return replace(row, details=details, published=published)


def _parameters(row: Row) -> str:
    sizes = {run.result()["parameters"] for run in row.runs.values()}
    return ", ".join(f"{size / 1e6:.3f} M" for size in sorted(sizes))


def _spread(value: Callable[[dict[str, Any]], float], digits: int, row: Row) -> str:
    values = [value(run.result()) for run in row.runs.values()]
    return mean_and_deviation(values, digits) or "failed" * bool(row.failed)


def _speed(row: Row) -> str:
    speeds = [run.result()["tokens_per_second"] for run in row.runs.values()]
    return f"{fmean(speeds):,.0f}" if speeds and all(speeds) else ""


def _paper(row: Row) -> str:
    paper = row.details.get("paper")
    return f"{paper['valid']} / {paper['test']} ({paper['parameters']} M)" if paper else ""


def _note(rows: Sequence[Row], text: Corpus) -> str:
    results = [run.result() for row in rows for run in row.runs.values()]
    seeds = ", ".join(map(str, rows[0].seeds))
    how = sorted({result["evaluation"] for result in results})
    precisions = sorted({result["precision"] for result in results})
    return (
        f"Text: {text.form}; {text.digest}. ± is the population standard deviation over seeds "
        f"({seeds}), and intervals are percentile bootstraps over seeds, too narrow for fewer than "
        f"ten. Measured by {' or '.join(how) or 'no run yet'}; matrix products in "
        f"{' or '.join(precisions) or 'no run yet'}. The paper's perplexities are of "
        "WikiText-103's words."
    )
