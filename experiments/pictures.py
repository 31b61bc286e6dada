"""Pictures of a grid: its table as points with intervals, and learning curves over seeds."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fastweights.evaluation.learning_curves import (
    Curve,
    draw_seeds,
    line_styles,
    new_figure,
    save,
)
from fastweights.evaluation.palette import BLUE, COLOURS, ORANGE
from fastweights.experiments.rows import Row
from fastweights.records.log_table import read_logs


def draw_rows(rows: Sequence[Row], unit: str, title: str, path: Path) -> None:
    """A line a row: each seed, their mean with its 95 % interval, and the published mean ± std."""
    names, shared = _names(rows)
    lines = sum(1 + name.count("\n") for name in names) + shared.count("\n")
    figure = new_figure(1.5 + 0.3 * lines)
    axes = figure.add_subplot(xlabel=unit)
    axes.set_title("\n".join(filter(None, (title, shared))), fontsize="medium")
    for place, row in enumerate(rows):
        values = list(row.values.values())
        axes.plot(values, [place] * len(values), ".", color=BLUE, alpha=0.4, label="a seed")
        if row.interval:
            axes.plot(row.interval, [place, place], color=BLUE, linewidth=2, label="95 % interval")
        if row.mean is not None:
            axes.plot(row.mean, place, "D", color=BLUE, label="mean")
        if row.published:
            style = {"color": ORANGE, "fmt": "o", "markerfacecolor": "none", "label": "paper"}
            axes.errorbar(row.published.mean, place + 0.25, xerr=row.published.std, **style)
    axes.set_yticks(range(len(rows)), names, fontsize="small")
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    if handles:
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles))
    save(figure, path)


def _names(rows: Sequence[Row]) -> tuple[list[str], str]:
    """Each row's labels that others have differently, and the labels that all rows share."""
    labels = [{name: str(value) for name, value in row.labels.items()} for row in rows]
    differ = [name for name in labels[0] if len({one[name] for one in labels}) > 1]
    differ = differ or list(labels[0])  # of a single row
    shared = [text for name, text in labels[0].items() if name not in differ]
    names = [_wrapped([one[name] for name in differ], 40) for one in labels]
    return names, _wrapped(shared, 80)


def _wrapped(texts: Sequence[str], width: int) -> str:
    return textwrap.fill(" · ".join(texts).replace("$", r"\$"), width)


def logged_curve(run_folder: Path, column: str) -> Curve:
    """The rows of a run's logs that have a number in `column`, over agent steps or updates."""
    logs = read_logs(run_folder)
    points = [pair for pair in zip(logs["step"], logs[column], strict=True) if None not in pair]
    return Curve(*np.array(points, float).reshape(-1, 2).T)


def draw_curves(
    curves: Mapping[str, list[Curve]], path: Path, title: str, labels: tuple[str, str]
) -> None:
    """A line for each name: the mean over its seeds, where all of them have points.

    Seeds and their band are drawn where there are few enough names that bands do not hide each
    other. `labels`: of the x and y axes.
    """
    figure = new_figure(5)
    axes = figure.add_subplot(title=title, xlabel=labels[0], ylabel=labels[1])
    styles = line_styles(list(curves))
    for name, seeds in curves.items():
        draw_seeds(axes, seeds, styles[name], name, bands=len(curves) <= len(COLOURS))
    axes.grid(alpha=0.3)
    if axes.lines:
        figure.legend(loc="outside right upper", fontsize="small")
    save(figure, path)
