"""The files of a suite: its table with each row's cost, learning curves, and logs."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fastweights.experiments.agents.logs import RETURN, draw_learning, write_logs
from fastweights.experiments.agents.suites import Suite
from fastweights.experiments.grid import Grid
from fastweights.experiments.table import (
    Table,
    each_seed,
    interval,
    label,
    mean_and_std,
    other,
    write_grid,
)

_NOTE = (
    "Return: mean of the last 100 training games, undiscounted and unclipped; ± is the population "
    "standard deviation over seeds. Interval: percentile bootstrap over seeds, too narrow for "
    "fewer than about ten. CPU minutes: user and system time of a run's process while it trained."
)


def training_return(result: Mapping[str, Any]) -> float | None:
    """Return the mean of the last 100 training games; None if none has ended."""
    return result["training"]["recent_full_game_return"]


def _agent_steps(result: Mapping[str, Any]) -> int:
    return result["training"]["agent_steps"]


def _cpu_minutes(result: Mapping[str, Any]) -> float | None:
    seconds = result["training"]["cpu_seconds"]
    return None if seconds is None else seconds / 60


COSTS = {"agent_steps": _agent_steps, "cpu_minutes": _cpu_minutes}


def table(suite: Suite) -> Table:
    """Return the table: returns with intervals, and their cost."""
    digits = {"digits": suite.digits}
    columns = {name: label(name, code=name != suite.panel) for name in suite.axes}
    columns |= {
        "return": partial(mean_and_std, **digits),
        "95 % interval": partial(interval, **digits),
        "each seed": partial(each_seed, **digits),
        "agent steps": other("agent_steps"),
        "CPU minutes": other("cpu_minutes", digits=1),
    }
    note = f"{suite.note}\n\n{_NOTE}" if suite.note else _NOTE
    shown = {"unit": "return", "axis": RETURN, "panel": suite.panel}
    return Table(columns=columns, title=suite.question, note=note, **shown)


def write_suite_table(suite: Suite, grid: Grid, out: Path, failures: Mapping[str, str]) -> None:
    """Write the files of `write_grid`, logs.csv and learning_curves.png."""
    rows = write_grid(grid, table(suite), training_return, out, failures, COSTS)
    write_logs(rows, out / "logs.csv")
    draw_learning(rows, suite.panel, out / "learning_curves.png", suite.question)
