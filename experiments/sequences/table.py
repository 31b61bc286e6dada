"""A rebuilt table from the paper: runs in parallel, then our figures next to the paper's."""

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from fastweights.cores import CORES, core_kind, import_core, is_named_by_size
from fastweights.evaluation import PublishedScore
from fastweights.experiments.grid import Cell, Grid, rebuild
from fastweights.experiments.learning_cells import without_folders
from fastweights.experiments.learning_options import check_seeds
from fastweights.experiments.rows import Row, rows_of
from fastweights.experiments.sequences.cells import SequenceRun
from fastweights.experiments.sequences.data import default_folder
from fastweights.experiments.sequences.figures import Figure, figures, labelled
from fastweights.experiments.sequences.outcomes import best_baseline, is_solved
from fastweights.experiments.table import Table, check_only, each_seed, label, mean_and_std
from fastweights.host import UserError, choose_device, did_you_mean, expanded, user_input
from fastweights.tasks import Task


@dataclass(frozen=True, kw_only=True)
class SequenceTableOptions:
    """Options of tables and other commands with many runs: cells and folders."""

    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds per cell of a table, figure or search."""
    only: tuple[str, ...] = ()
    """Only these cores of a table or figure."""
    further: tuple[str, ...] = ()
    """--table: cores to add that are not in the paper's table, or all."""
    settings: tuple[str, ...] = ()
    """Only these settings of a table, such as variables=3, depth=10 or parity."""
    jobs: int = 0
    """Number of parallel runs, one thread each; 0: one per CPU core."""
    epochs_at_most: int | None = None
    """Maximum number of epochs per run, for a first look."""
    runs: Path = Path("runs/tables")
    """Folder for the runs of a table, figure or search."""
    out: Path | None = None
    """Folder for the table or figure and its numbers (default: in --runs, by preset)."""

    @property
    def shortened(self) -> str:
        """The mark of --epochs-at-most in folder and file names."""
        return f"-{self.epochs_at_most}-epochs" if self.epochs_at_most else ""


def make_sequence_table(
    command: str,
    number: int,
    preset_name: str,
    asked: SequenceTableOptions,
    changes: Mapping[str, Any] | None = None,
) -> int:
    """Run missing runs and write the table; return the command's exit code.

    Args:
        command: name of the command.
        number: number of the table.
        preset_name: name of the preset.
        asked: cells and folders.
        changes: changes to the preset for all figures, as in `figures`. Failed runs are gaps in
            the table.
    """
    check_table(asked)
    # Make the path absolute: a run may be started from another folder.
    folder = expanded(asked.runs).resolve() / f"{preset_name}{asked.shortened}"
    changes = {**(changes or {}), "savedir": folder}
    settings = preset_name, asked.epochs_at_most, changes, _further(asked)
    wanted = _wanted(figures(command, number, *settings), asked)
    one = wanted[0].options.task
    name = command if one.command else labelled(one)
    title = f"{name}, table {number}, preset {preset_name}"
    title += f", at most {asked.epochs_at_most} epochs" if asked.epochs_at_most else ""
    first = wanted[0].options  # all figures use the same selection
    title += ", selected by Bin0 and Bin1 as published" if first.legacy_selection else ""
    cells = [cell for figure in wanted for cell in _cells(figure, asked)]
    out = expanded(asked.out or folder).resolve()
    marks = f"{first.selection_mark}{asked.shortened}"
    path = out / f"{name}_table_{number}{marks}".replace("-", "_")
    grid = Grid(title, cells, folder)
    return rebuild(grid, partial(_write, grid, wanted, path), out, asked.jobs)


def paper_table(rows: Sequence[Row], title: str = "") -> Table:
    """Return our figures, each seed's and the paper's, in percent; a note explains ±."""
    columns = {
        "setting": label("setting"),
        "model": _model,
        "core": label("core", code=True),
        "measure": label("measure"),
        "here": mean_and_std,
        "seeds": each_seed,
        "paper": _paper,
    }
    if any("baseline" in row.details for row in rows):
        columns |= {
            "best baseline": lambda row: row.details.get("baseline", ""),
            "seeds solved": _solved,
            "updates, seconds to solve": _cost,
        }
    shown = {"axis": "accuracy, percent", "panel": "setting"}
    return Table(columns=columns, title=title, note=_note(rows), **shown)


def _cells(figure: Figure, asked: SequenceTableOptions) -> list[Cell]:
    score, is_run = figure.published, _is_run(figure, asked)
    labels = {
        "setting": setting_label(score.setting, figure.options.task),
        "row": score.row,
        "core": score.core,
        "measure": score.measure.replace("_", " "),
    }
    return [
        Cell({**labels, "seed": seed}, figure.run(seed) if is_run else None) for seed in asked.seeds
    ]


def setting_label(published: str, task: Task) -> str:
    """Return the paper's setting, and the options in which the runs' task differs from it.

    Formal languages have a title instead.
    """
    if title := getattr(task, "title", None):
        return title
    name, _, value = published.partition("=")
    papers = type(task)(**({name: int(value)} if name else {}))
    own, theirs = asdict(task), asdict(papers)
    differ = ", ".join(f"{name}={own[name]}" for name in own if own[name] != theirs[name])
    return f"{published} (here {differ})" if differ else published


def _write(grid: Grid, of_rows: Sequence[Figure], path: Path, failures: Mapping[str, str]) -> None:
    found = zip(rows_of(grid.cells, failures, _percent), of_rows, strict=True)
    rows = [_beside_the_papers(row, figure) for row, figure in found]
    paper_table(rows, grid.title).write(rows, path)


def _percent(labels_and_result: Mapping[str, Any]) -> float:
    split, measure = labels_and_result["measure"].split(maxsplit=1)
    return 100 * float(labels_and_result[split][measure.replace(" ", "_")])


def _beside_the_papers(row: Row, figure: Figure) -> Row:
    score = figure.published
    results = [run.result() for run in row.runs.values()]
    details = {
        "sizes": {} if figure.has_papers_sizes else figure.sizes,
        "results": results,
        "options": without_folders(figure.options.to_dict()),
    }
    if figure.options.task.command and results:
        details["baseline"] = _baseline(results[0], row.labels["measure"])
    published = None if score.mean is None else PublishedScore(score.mean, score.std)
    return replace(row, published=published, details=details)


def _model(row: Row) -> str:
    """Return the core's name, with its sizes if they differ from the paper's row."""
    sizes = " ".join(f"{name}={size}" for name, size in row.details.get("sizes", {}).items())
    return row.labels["row"] + (f" (here {sizes})" if sizes else "")


def _paper(row: Row) -> str:
    if not row.published:
        return ""
    of_seeds = "" if row.published.std is None else f" ± {row.published.std:.1f}"
    return f"{row.published.mean:.1f}{of_seeds}"


def _baseline(result: Mapping[str, Any], measure: str) -> str:
    """Return the best score among a task's baselines, and the baseline's name."""
    split, measure = measure.split(maxsplit=1)
    share, name = best_baseline(result, split, measure.replace(" ", "_"))
    return f"{100 * share:.1f} ({name})"


def _solved(row: Row) -> str:
    """Return `2 of 3`: seeds that solved the task, of all that ran, including failed ones."""
    results = row.details.get("results", [])
    run = len(results) + len(row.failed)
    return f"{sum(map(is_solved, results))} of {run}" if run else ""


def _cost(row: Row) -> str:
    """Return means over the seeds that solved the task."""
    solved = [result for result in row.details.get("results", []) if is_solved(result)]
    if not solved:
        return ""
    updates, seconds = (fmean(result[name] for result in solved) for name in ("updates", "seconds"))
    return f"{updates:,.0f}, {seconds:,.0f}"


def _note(rows: Sequence[Row]) -> str:
    seeds = rows[0].seeds
    named = ", ".join(map(str, seeds))
    if len(seeds) == 1:
        has_deviations = any(row.published and row.published.std is not None for row in rows)
        return f"Here: seed {named} alone" + ("; ± is the paper's." if has_deviations else ".")
    note = f"± here is the population standard deviation over {len(seeds)} seeds ({named})"
    return note + (", those that failed left out." if any(row.failed for row in rows) else ".")


def _further(asked: SequenceTableOptions) -> tuple[str, ...]:
    """Return the added cores' names; `all` leaves out size variants of other cores."""
    if asked.further == ("all",):
        return tuple(name for name in CORES if not is_named_by_size(name))
    with user_input():
        for name in asked.further:
            import_core(name)
            core_kind(name)
    return asked.further


def check_table(asked: SequenceTableOptions) -> None:
    """Raise a one-line `UserError` for options that are invalid for every table."""
    with user_input():
        check_seeds(asked.seeds)
    if asked.epochs_at_most is not None and asked.epochs_at_most < 1:
        raise UserError(f"--epochs-at-most must be at least 1, not {asked.epochs_at_most}")


def _wanted(everything: list[Figure], asked: SequenceTableOptions) -> list[Figure]:
    known: Set[str] = {one.published.choice for one in everything}
    if unknown := sorted(set(asked.settings) - known):
        known_ones = ", ".join(sorted(known))
        hint = did_you_mean(unknown[0], sorted(known))
        raise UserError(f"--settings {' '.join(unknown)}: unknown; known: {known_ones}{hint}")
    rows = dict.fromkeys(one.options.core for one in everything)
    check_only(asked.only, rows)
    wanted = [one for one in everything if one.published.choice in (asked.settings or known)]
    options = wanted[0].options
    with user_input():
        choose_device(options.device)
    if options.data and len({default_folder(one.options) for one in wanted}) > 1:
        raise UserError(
            f"--data holds the sequences of one setting: choose one of {', '.join(sorted(known))} "
            "by --settings, or leave --data out"
        )
    return wanted


def _is_run(figure: Figure, asked: SequenceTableOptions) -> bool:
    """Return whether the table runs the figure's seeds, or has already found all of them."""
    if figure.options.core not in CORES:
        return False
    runs = (figure.run(seed) for seed in asked.seeds)
    return figure.options.core in (asked.only or CORES) or all(map(_is_there, runs))


def _is_there(run: SequenceRun) -> bool:
    """Return whether the run has finished; an unrelated run in its folder is not an error."""
    if run.finished:
        with suppress(UserError):
            run.check()
            return True
    return False
