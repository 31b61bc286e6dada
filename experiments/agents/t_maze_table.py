"""The T-maze's grid: every core with several seeds, and its share of test games won."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from fastweights.evaluation import save_figure
from fastweights.evaluation.reports import agent_steps
from fastweights.experiments.agents.cells import AgentRun
from fastweights.experiments.agents.logs import RETURN, curves_of
from fastweights.experiments.grid import Grid
from fastweights.experiments.pictures import Panel, curves_figure
from fastweights.experiments.rows import Row
from fastweights.experiments.table import Table, label, mean_and_std, write_grid
from fastweights.training import preset

TITLE = "T-maze, corridor of 10"


def t_maze_run(core: str, seed: int, runs: Path, total_steps: int | None = None) -> AgentRun:
    """Return one run of the table, in `runs`; raise a one-line `ValueError` for invalid numbers."""
    options = replace(preset("maze", core), seed=seed, savedir=runs, xpid=f"{core}-{seed}")
    if total_steps is not None:
        options = replace(options, learner=replace(options.learner, total_steps=total_steps))
    return AgentRun(options, "maze")


def won_share(result: Mapping[str, Any]) -> float:
    """Return the share of games won; a return above zero means a turn to the side of the cue."""
    return 100 * fmean(one > 0 for one in result["returns"])


def table(seeds: Sequence[int]) -> Table:
    """Return the table: share of test games won, by seed, and the mean."""
    each = {f"seed {seed}": partial(_of_seed, seed) for seed in sorted(seeds)}
    columns = {"core": label("core", code=True), **each, "mean ± std": _spread}
    return Table(columns=columns, axis="test games won, percent (chance is 50)", title=TITLE)


def write_t_maze_table(
    grid: Grid, seeds: Sequence[int], out: Path, failures: Mapping[str, str]
) -> None:
    """Write the files of `write_grid`, and learning_curves.png."""
    rows = write_grid(grid, table(seeds), won_share, out, failures)
    curves = {row.labels["core"]: curves_of(row, agent_steps) for row in rows}
    unit = f"{RETURN}\n(1: all won, 0: chance)"
    figure = curves_figure([[Panel(curves, "agent steps", unit)]], TITLE)
    save_figure(figure, out / "learning_curves.png")


def _of_seed(seed: int, row: Row) -> str:
    return f"{row.values[seed]:.1f} %" if seed in row.values else ""


def _spread(row: Row) -> str:
    return f"{mean_and_std(row)} %" if row.values else ""
