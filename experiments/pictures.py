"""Pictures of runs: a table as points with intervals, curves over seeds, accuracy over lengths."""

import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


def draw_rows(rows: Sequence[Row], unit: str, title: str, path: Path, panel: str = "") -> None:
    """Draw a line for each row: seeds, mean with 95 % interval, and the published mean ± std.

    `panel`: the label whose values each have a panel with its own axis.
    """
    names, shared = _names(rows, panel)
    panels: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        panels.setdefault(str(row.labels.get(panel, "")), []).append(place)
    lines = sum(1 + name.count("\n") for name in names) + shared.count("\n")
    figure = new_figure(0.7 + 0.8 * len(panels) + 0.3 * lines)
    ratios = [1 + len(places) for places in panels.values()]
    every = figure.subplots(len(panels), squeeze=False, height_ratios=ratios)[:, 0]
    above = [title, shared]
    for axes, (name, places) in zip(every, panels.items(), strict=True):
        axes.set_title("\n".join(filter(None, (*above, name))), fontsize="medium")
        _draw_points(axes, [rows[place] for place in places])
        axes.set_yticks(range(len(places)), [names[place] for place in places], fontsize="small")
        axes.set_ylim(len(places) - 0.5, -0.5)  # the first on top; also rows without a value
        axes.grid(axis="x", alpha=0.3)
        above = []
    every[-1].set_xlabel(unit)
    handles = {name: handle for axes in every for name, handle in _labelled(axes)}
    if handles:
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles))
    save(figure, path)


def _draw_points(axes: Any, rows: Sequence[Row]) -> None:
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


def _labelled(axes: Any) -> Iterator[tuple[str, Any]]:
    handles, labels = axes.get_legend_handles_labels()
    return zip(labels, handles, strict=True)


def _names(rows: Sequence[Row], panel: str) -> tuple[list[str], str]:
    """Return each row's differing labels, and the labels that all rows share.

    The label `panel` is left out: it is the panel's title.
    """
    labels = [{n: str(value) for n, value in row.labels.items() if n != panel} for row in rows]
    differ = [name for name in labels[0] if len({one[name] for one in labels}) > 1]
    differ = differ or list(labels[0])  # a single row
    shared = [text for name, text in labels[0].items() if name not in differ]
    names = [_wrapped([one[name] for name in differ], 40) for one in labels]
    return names, _wrapped(shared, 80)


def _wrapped(texts: Sequence[str], width: int) -> str:
    return textwrap.fill(" · ".join(texts).replace("$", r"\$"), width)


class Panel(NamedTuple):
    """Learning curves of several seeds by name, and the labels of the axes."""

    curves: Mapping[str, list[Curve]]
    x: str
    y: str
    title: str = ""


def draw_curves(panels: Sequence[Sequence[Panel]], path: Path, title: str) -> None:
    """Draw a line for each name: the mean over its seeds, where all of them have points.

    A name has the same line style in all `panels`, which are given row by row. Seeds and their band
    are drawn only for few names, so that bands do not hide each other.
    """
    across = len(panels[0])
    figure = new_figure(1 + 4 * len(panels), 3 + 5 * across)
    figure.suptitle(title)
    every = figure.subplots(len(panels), across, squeeze=False)
    names = dict.fromkeys(name for row in panels for panel in row for name in panel.curves)
    styles, bands = line_styles(list(names)), len(names) <= len(COLOURS)
    for axes, panel in zip(every.flat, itertools.chain.from_iterable(panels), strict=True):
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        axes.grid(alpha=0.3)
        for name, seeds in panel.curves.items():
            draw_seeds(axes, seeds, styles[name], name, bands)
    handles = {name: handle for axes in every.flat for name, handle in _labelled(axes)}
    if handles:
        figure.legend(handles.values(), handles, loc="outside right upper", fontsize="small")
    save(figure, path)


def draw_lengths(points: np.ndarray, path: Path) -> None:
    """Draw a point for each length: the share of its sequences that are all right."""
    figure = new_figure(3)
    labels = {"xlabel": "length", "ylabel": "sequences right, of 1"}
    axes = figure.add_subplot(xscale="log", ylim=(-0.05, 1.05), **labels)
    axes.plot(*points.T, ".", color=BLUE)
    axes.grid(alpha=0.3)
    save(figure, path)
