"""Logs of a grid of agents: learning curves, and copies that are small enough to store.

Curves begin as in the reports: once as many games have ended as there are environments
(`evaluation/training_returns.py`). Copies hold rows from the whole log.
"""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from fastweights.evaluation import FULL_GAME, Curve, save_figure
from fastweights.evaluation.reports import (
    LoggedRun,
    agent_steps,
    column_numbers,
    cpu_minutes,
    open_run,
    return_curve,
)
from fastweights.experiments.pictures import Panel, curves_figure
from fastweights.experiments.rows import Row
from fastweights.host import write_bytes

RETURN = "return, mean of the last 100 training games"
# Columns of logs.csv to copy, in addition to agent steps and CPU time.
_COPIED = (
    *("games", FULL_GAME.recent, "recent_game_agent_steps", "approx_kl", "clip_fraction"),
    *("explained_variance", "entropy_loss", "gradient_norm", "learning_rate"),
)
_MOST_ROWS = 200  # maximum number of copied rows per run


def curves_of(row: Row, x: Callable[[LoggedRun], np.ndarray]) -> list[Curve]:
    """Return a learning curve per finished seed, over agent steps or CPU minutes."""
    return [return_curve(open_run(run.path), FULL_GAME, x) for run in row.runs.values()]


def draw_learning(rows: Sequence[Row], panel: str, path: Path, title: str) -> None:
    """Draw the return over agent steps and CPU minutes, one row of panels per value of `panel`.

    Lines are named by the other labels that differ between rows.
    """
    panels: dict[str, list[Row]] = {}
    for row in rows:
        panels.setdefault(row.labels[panel], []).append(row)
    differ = [n for n in rows[0].labels if n != panel and len({r.labels[n] for r in rows}) > 1]
    drawn = [
        [
            Panel({_name(row, differ): curves_of(row, x) for row in found}, label, RETURN, name)
            for label, x in (("agent steps", agent_steps), ("CPU minutes", cpu_minutes))
        ]
        for name, found in panels.items()
    ]
    save_figure(curves_figure(drawn, title), path)


def write_logs(rows: Sequence[Row], path: Path) -> None:
    """Write a CSV file of all finished runs' logs: up to 200 rows of each, evenly spaced.

    The last row is always included. `cpu_seconds` count from the run's start.
    """
    text = io.StringIO(newline="")
    labels = [*rows[0].labels, "seed"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*labels, "step", "cpu_seconds", *_COPIED])
    for row in rows:
        for seed, run in row.runs.items():
            of_run = [*row.labels.values(), seed]
            writer.writerows([*of_run, *line] for line in _copied(open_run(run.path)))
    write_bytes(path, text.getvalue().encode())


def _copied(run: LoggedRun) -> Iterator[list[Any]]:
    steps = agent_steps(run)
    columns = [steps, 60 * cpu_minutes(run), *(column_numbers(run, name) for name in _COPIED)]
    kept = np.unique(np.linspace(0, len(steps) - 1, _MOST_ROWS).round().astype(int))
    for index in kept:
        yield [f"{column[index]:.7g}" if isfinite(column[index]) else "" for column in columns]


def _name(row: Row, labels: Sequence[str]) -> str:
    return " · ".join(str(row.labels[name]) for name in labels or row.labels)
