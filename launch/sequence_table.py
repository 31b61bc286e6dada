"""A table of the paper, rebuilt: every cell's runs side by side, then ours beside the paper's.

Each run is one command in a process of its own; those that are there are kept, those cut off go on.
"""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rich.console import Console

from cores import CORES
from kernels.names import did_you_mean
from launch.atomic_files import write_bytes
from launch.devices import choose_device, processors
from launch.failures import UserError, describe_os_error, expanded, user_input
from launch.folder_lock import FolderLock
from launch.sequence_cells import Cell, Run, cells, labelled, without_folders
from launch.sequence_data import default_folder
from launch.sequence_jobs import STOPPED, Job, SideBySide, report
from launch.sequence_options import check_seed
from launch.stopping import Interrupted
from tasks import Task


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    seeds: tuple[int, ...] = (1, 2, 3)
    """--table: seeds of each cell."""
    only: tuple[str, ...] = ()
    """--table: only these cores."""
    settings: tuple[str, ...] = ()
    """--table: only these of the paper's settings, such as variables=3 or depth=10."""
    jobs: int = 0
    """--table: runs at once, one thread each; 0: as many as there are cores."""
    epochs_at_most: int | None = None
    """--table: fewer epochs than the preset has, for a first look."""
    runs: Path = Path("runs/tables")
    """--table: folder of the runs."""
    out: Path | None = None
    """--table: folder of TASK_table_NUMBER.md and .json (default: in --runs, by the preset)."""


def make_table(
    task: type[Task],
    number: int,
    preset_name: str,
    asked: TableOptions,
    changes: Mapping[str, Any] | None = None,
) -> int:
    """Runs what is missing and writes the table; returns the command's exit code.

    `changes`: what all cells have besides the preset, as in `cells`. Runs that fail are gaps in
    the table.
    """
    _check(asked)
    shortened = f"-{asked.epochs_at_most}-epochs" if asked.epochs_at_most else ""
    # Once: a run may be started from another folder than this one.
    folder = expanded(asked.runs).resolve() / f"{preset_name}{shortened}"
    changes = {**(changes or {}), "savedir": folder}
    of_table = cells(task, number, preset_name, asked.epochs_at_most, changes)
    everything = _wanted_cells(of_table, asked)
    runs = _runs(everything, asked)
    title = f"{labelled(everything[0].options.task)}, table {number}, preset {preset_name}"
    title += f", at most {asked.epochs_at_most} epochs" if asked.epochs_at_most else ""
    out = expanded(asked.out or folder).resolve()
    _make_folder(folder, "--runs")
    _make_folder(out, "--out")
    with _locked(folder):
        for run in runs:
            run.check()
        try:
            failures = _train(title, runs, asked.jobs or processors(), folder)
        except Interrupted as interrupted:
            print(STOPPED)
            return 128 + interrupted.signal_number
        rows = [_row(cell, asked.seeds, set(runs), failures) for cell in everything]
        stem = f"{labelled(everything[0].options.task)}_table_{number}{shortened}"
        _write(title, rows, out / stem.replace("-", "_"))
    return report(failures, folder)


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """One line a figure: ours, each seed, and the paper's, in percent; below, what ± is."""
    head = ["setting", "model", "core", "measure", "here", "seeds", "paper"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        paper = f"{row['paper_mean']:.1f} ± {row['paper_std']:.1f}"
        shown = (_mean(row), ", ".join(_each_seed(row)), paper)
        model = f"{row['row']}{_sizes_here(row)}"
        lines.append([row["setting"], model, f"`{row['core']}`", row["measure"], *shown])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n{_note(rows)}\n"


def _sizes_here(row: dict[str, Any]) -> str:
    """Where they are not those that the paper's row names."""
    sizes = row["sizes"]
    return f" (here {' '.join(f'{n}={size}' for n, size in sizes.items())})" if sizes else ""


def _mean(row: dict[str, Any]) -> str:
    values = row["percent"]
    if len(values) > 1:
        return f"{fmean(values):.1f} ± {pstdev(values):.1f}"
    return f"{values[0]:.1f}" if values else "failed" * bool(row["failed"])


def _each_seed(row: dict[str, Any]) -> list[str]:
    if not row["percent"] and not row["failed"]:
        return []
    values = iter(row["percent"])
    failed = row["failed"]
    return ["failed" if seed in failed else f"{next(values):.1f}" for seed in row["seeds"]]


def _note(rows: Sequence[dict[str, Any]]) -> str:
    seeds = rows[0]["seeds"]
    named = ", ".join(map(str, seeds))
    note = f"Here: seed {named} alone; ± is the paper's."
    if len(seeds) > 1:
        note = f"± here is the population standard deviation over {len(seeds)} seeds ({named})"
        failed = any(row["failed"] for row in rows)
        note += ", those that failed left out." if failed else "."
    return note


def _check(asked: TableOptions) -> None:
    """What no table can have. Raises a one-line `UserError`."""
    if not asked.seeds or len(set(asked.seeds)) < len(asked.seeds):
        raise UserError("--seeds needs at least one, and each of them once")
    with user_input():
        for seed in asked.seeds:
            check_seed("--seeds", seed)
    if asked.jobs < 0:
        raise UserError(f"--jobs must be at least 0, not {asked.jobs}")
    if asked.epochs_at_most is not None and asked.epochs_at_most < 1:
        raise UserError(f"--epochs-at-most must be at least 1, not {asked.epochs_at_most}")


def _wanted_cells(everything: list[Cell], asked: TableOptions) -> list[Cell]:
    known: Set[str] = {cell.published.setting for cell in everything}
    if unknown := sorted(set(asked.settings) - known):
        known_ones = ", ".join(sorted(known))
        hint = did_you_mean(unknown[0], sorted(known))
        raise UserError(f"--settings {' '.join(unknown)}: unknown; known: {known_ones}{hint}")
    rows = dict.fromkeys(cell.options.core for cell in everything)
    if unknown := sorted(set(asked.only) - set(rows)):
        hint = did_you_mean(unknown[0], rows)
        raise UserError(f"--only {' '.join(unknown)}: this table has {', '.join(rows)}{hint}")
    wanted = [c for c in everything if c.published.setting in (asked.settings or known)]
    options = wanted[0].options
    with user_input():
        choose_device(options.device)
    if options.data and len({default_folder(cell.options) for cell in wanted}) > 1:
        raise UserError(
            f"--data holds the sequences of one setting: name one of {', '.join(sorted(known))} "
            "by --settings, or leave --data out"
        )
    return wanted


def _runs(everything: list[Cell], asked: TableOptions) -> list[Run]:
    """All that the table needs, each once; and what else of it there is, in all its seeds."""
    known = [cell for cell in everything if cell.options.core in CORES]
    trained = [
        cell
        for cell in known
        if cell.options.core in (asked.only or CORES)
        or all(_is_there(cell.run(seed)) for seed in asked.seeds)
    ]
    return list(dict.fromkeys(cell.run(seed) for seed in asked.seeds for cell in trained))


def _is_there(run: Run) -> bool:
    """Whether it has finished, as the table's; one that nobody asked for is no error if not."""
    if run.finished:
        with suppress(UserError):
            run.check()
            return True
    return False


def _make_folder(folder: Path, flag: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{flag} cannot be made: {describe_os_error(error)}") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        lock = FolderLock(folder)
    except BlockingIOError as error:
        raise UserError(
            f"{folder} is being filled by another table (process {error.strerror}): wait for it, "
            "or name another --runs"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _train(title: str, runs: list[Run], at_once: int, folder: Path) -> dict[str, str]:
    """Runs what is missing; returns why some failed, by their names."""
    missing, console = [run for run in runs if not run.finished], Console()
    said = f"{title}: {len(runs)} runs, {len(missing)} of them to do"
    names = ", ".join(run.name for run in missing)
    console.print(f"{said}: {names}" if names else said, markup=False, soft_wrap=True)
    side_by_side = SideBySide(at_once, folder, console)
    side_by_side.run([Job(run.name, run.command) for run in missing])
    unmeasured = {run.name: "it has no result" for run in missing if not run.finished}
    return unmeasured | side_by_side.failures


def _row(
    cell: Cell, seeds: Sequence[int], runs: Set[Run], failures: Mapping[str, str]
) -> dict[str, Any]:
    score = cell.published
    wanted = [run for run in map(cell.run, seeds) if run in runs]
    found = {run: run.result() for run in wanted if run.name not in failures}
    return {
        "setting": f"{score.setting} ({cell.options.task})",
        "row": score.row,
        "core": score.core,
        "sizes": {} if cell.has_papers_sizes else cell.sizes,
        "measure": score.measure.replace("_", " "),
        "percent": [_percent(run, result, score.measure) for run, result in found.items()],
        "results": list(found.values()),
        "seeds": list(seeds),
        "failed": [run.options.seed for run in wanted if run.name in failures],
        "options": without_folders(cell.options.to_dict()),
        "paper_mean": score.mean,
        "paper_std": score.std,
    }


def _percent(run: Run, result: dict[str, Any], where: str) -> float:
    split, measure = where.split()
    try:
        return 100 * float(result[split][measure])
    except (LookupError, TypeError, ValueError) as error:
        raise run.damaged(error) from error


def _write(title: str, rows: list[dict[str, Any]], path: Path) -> None:
    """The table at `path`.md and its runs at `path`.json."""
    text = f"# {title}\n\n{markdown(rows)}"
    write_bytes(path.with_name(f"{path.name}.md"), text.encode())
    write_bytes(path.with_name(f"{path.name}.json"), (json.dumps(rows, indent=1) + "\n").encode())
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
