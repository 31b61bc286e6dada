"""A table of the paper, rebuilt: every cell's runs side by side, then ours beside the paper's.

Each run is one command in a process of its own; those that are there are kept, those cut off go on.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from cores import CORES
from launch.atomic_files import write_bytes
from launch.failures import UserError
from launch.published_scores import AlgorithmicScore, algorithmic
from launch.run_folder import read_meta
from launch.sequence_options import SequenceOptions, preset, with_sizes
from launch.sequence_run import RESULT
from tasks import Task

ROOT = Path(__file__).parent.parent


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
    """--table: folder of table.md and results.json (default: --runs)."""


class Cell(NamedTuple):
    """One figure of the paper, and what to run for it."""

    published: AlgorithmicScore
    options: SequenceOptions

    @property
    def folder(self) -> str:
        """What a run's name begins with; cells of one training share it."""
        setting = self.published.setting.replace("=", "")
        sizes = self.published.sizes.replace(" ", "-").replace("=", "")
        return "-".join(filter(None, [self.options.task.name, setting, self.options.core, sizes]))


def make_table(task: type[Task], number: int, preset_name: str, asked: TableOptions) -> int:
    """Runs what is missing and writes the table; returns the command's exit code."""
    everything = cells(task, number, preset_name, asked.epochs_at_most)
    _check(asked, {cell.published.setting for cell in everything})
    if asked.settings:
        everything = [cell for cell in everything if cell.published.setting in asked.settings]
    shortened = f"-{asked.epochs_at_most}-epochs" if asked.epochs_at_most else ""
    runs_folder = asked.runs.expanduser() / f"{preset_name}{shortened}"
    trained = [cell for cell in everything if cell.options.core in CORES]
    if asked.only:
        trained = [cell for cell in trained if cell.options.core in asked.only]
    wanted = list(
        dict.fromkeys((cell.folder, cell.options, seed) for seed in asked.seeds for cell in trained)
    )
    missing = [one for one in wanted if not (runs_folder / _name(*one) / RESULT).exists()]
    console = Console()
    console.print(f"table {number}: {len(wanted)} runs, {len(missing)} of them to do")
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress, ThreadPoolExecutor(asked.jobs or _processors()) as pool:
        bar = progress.add_task("runs", total=len(missing))
        for _ in pool.map(lambda one: _run(*one, runs_folder), missing):
            progress.advance(bar)
    results = {one: _result(runs_folder / _name(*one)) for one in wanted}
    out = (asked.out or runs_folder).expanduser()
    out.mkdir(parents=True, exist_ok=True)
    stem = f"{task.name}_table_{number}"
    rows = [_row(cell, asked.seeds, results) for cell in everything]
    text = f"# {task.name}, table {number}, preset {preset_name}\n\n{markdown(rows)}"
    write_bytes(out / f"{stem}.md", text.encode())
    write_bytes(out / f"{stem}.json", (json.dumps(rows, indent=1) + "\n").encode())
    console.print(text, markup=False)
    return 0


def cells(task: type[Task], number: int, preset_name: str, epochs: int | None) -> list[Cell]:
    """The table's figures in the paper's order. Raises `UserError` for a table there is not."""
    scores = [score for score in algorithmic() if score.task == task.name]
    if number not in {score.table for score in scores}:
        known = ", ".join(map(str, sorted({score.table for score in scores})))
        raise UserError(f"--table {number} has no {task.name}; tables that have: {known}")
    return [
        Cell(score, _options(task, score, preset_name, epochs))
        for score in scores
        if score.table == number
    ]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """One line a figure: ours, each seed, and the paper's, in percent."""
    head = ["setting", "model", "core", "measure", "here", "seeds", "paper"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        values = row["percent"]
        here = f"{fmean(values):.1f} ± {pstdev(values):.1f}" if values else ""
        seeds = ", ".join(f"{value:.1f}" for value in values)
        paper = f"{row['paper_mean']:.1f} ± {row['paper_std']:.1f}"
        lines.append(
            [row["setting"], row["row"], f"`{row['core']}`", row["measure"], here, seeds, paper]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _check(asked: TableOptions, settings: Set[str]) -> None:
    for flag, given, known in (
        ("--only", asked.only, CORES),
        ("--settings", asked.settings, sorted(settings)),
    ):
        if unknown := set(given) - set(known):
            given = " ".join(sorted(unknown))
            raise UserError(f"{flag} {given}: unknown; known: {', '.join(known)}")
    if not asked.seeds:
        raise UserError("--seeds needs at least one")
    if asked.jobs < 0:
        raise UserError(f"--jobs must be at least 0, not {asked.jobs}")


def _options(
    task: type[Task], score: AlgorithmicScore, preset_name: str, epochs: int | None
) -> SequenceOptions:
    name, value = score.setting.split("=")
    asked = task(**{name: int(value)})
    if score.core not in CORES:  # the paper's figure stands alone
        return replace(preset(preset_name, "lstm", asked), core=score.core)
    options = preset(preset_name, score.core, asked)
    sizes = dict(pair.split("=") for pair in score.sizes.split())
    options = with_sizes(options, {name: int(size) for name, size in sizes.items()})
    if epochs is None:
        return options
    return replace(options, trainer=replace(options.trainer, epochs=epochs))


def _name(folder: str, options: SequenceOptions, seed: int) -> str:
    return f"{folder}-seed{seed}"


def _result(run: Path) -> dict[str, Any]:
    """What the run came to, and the commit that it ran at."""
    git = read_meta(run).get("git") or {}
    return json.loads((run / RESULT).read_text()) | {"commit": git.get("commit")}


def _run(folder: str, options: SequenceOptions, seed: int, runs: Path) -> None:
    path = runs / _name(folder, options, seed)
    script = ROOT / "launch" / f"{options.task.name}.py"
    command = [sys.executable, str(script)]
    if (path / "meta.json").exists():
        command += ["--resume", str(path), "--num-threads", "1"]
    else:
        where = replace(options, seed=seed, num_threads=1, savedir=runs, xpid=path.name)
        command += flags(where)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise UserError(f"{shlex.join(command)}: {done.stderr or done.stdout}")


def flags(options: SequenceOptions) -> list[str]:
    """The command line that gives these options, whatever the preset."""
    plain = options.to_dict()
    plain |= plain.pop("task") | plain.pop("trainer")
    del plain["task_name"]
    given = []
    for name, value in plain.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            given.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            given += [f"--{flag}", str(value)]
    return given


def _row(cell: Cell, seeds: Sequence[int], results: dict) -> dict[str, Any]:
    score = cell.published
    split, measure = score.measure.split()
    found = [results.get((cell.folder, cell.options, seed)) for seed in seeds]
    options = cell.options.to_dict()
    return {
        "setting": f"{score.setting} ({cell.options.task})",
        "row": score.row,
        "core": score.core,
        "measure": score.measure.replace("_", " "),
        "percent": [100 * result[split][measure] for result in found if result],
        "results": [result for result in found if result],
        "seeds": list(seeds),
        "options": {name: options[name] for name in options if name not in ("savedir", "data")},
        "paper_mean": score.mean,
        "paper_std": score.std,
    }


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
