"""Pictures of a grid: its table as points with intervals, and learning curves over seeds."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fastweights.evaluation.palette import BLUE, COLOURS, ORANGE
from fastweights.evaluation.reports.curves import Curve, band
from fastweights.experiments.language_trace import Trace
from fastweights.experiments.rows import Row
from fastweights.host.atomic_files import replacing
from fastweights.records.log_table import read_logs

_IN_LEGEND = 9
_SHOWN_SYMBOLS = 80  # more do not fit below an axis
_DASHES = ("-", "--", ":")  # for more lines than colours


def draw_rows(rows: Sequence[Row], unit: str, title: str, path: Path) -> None:
    """A line a row: each seed, their mean with its 95 % interval, and the published mean ± std."""
    names, shared = _names(rows)
    lines = sum(1 + name.count("\n") for name in names) + shared.count("\n")
    figure = _figure(1.5 + 0.3 * lines)
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
    _save(figure, path)


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

    A band from the lowest to the highest seed is drawn where there are few enough names that
    bands do not hide each other. `labels`: of the x and y axes.
    """
    figure = _figure(5)
    axes = figure.add_subplot(title=title, xlabel=labels[0], ylabel=labels[1])
    for number, (name, seeds) in enumerate(curves.items()):
        if (together := band(seeds)) is None:
            continue
        colour = COLOURS[number % len(COLOURS)]
        dashes = _DASHES[number // len(COLOURS) % len(_DASHES)]
        if len(curves) <= len(COLOURS):
            axes.fill_between(together.x, together.low, together.high, color=colour, alpha=0.15)
        axes.plot(together.x, together.mean, color=colour, linestyle=dashes, label=name)
    axes.grid(alpha=0.3)
    if axes.lines:
        figure.legend(loc="outside right upper", fontsize="small")
    _save(figure, path)


def draw_lengths(points: np.ndarray, path: Path) -> None:
    """A point a length: its length, and the share of its sequences that are all right."""
    figure = _figure(3)
    labels = {"xlabel": "length", "ylabel": "sequences right, of 1"}
    axes = figure.add_subplot(xscale="log", ylim=(-0.05, 1.05), **labels)
    axes.plot(*points.T, ".", color=BLUE)
    axes.grid(alpha=0.3)
    _save(figure, path)


def draw_trace(found: Trace, title: str, path: Path) -> None:
    """The machine, the number that follows it, and the write strengths, over the string."""
    count = 3 if found.strengths else 2
    figure, places = _figure(1.6 * count + 1), np.arange(1, len(found.symbols) + 1)
    figure.suptitle(title, fontsize="medium")
    panels = figure.subplots(count, sharex=True)
    panels[0].step(places, found.levels, where="mid", color=ORANGE)
    panels[0].set_ylabel("machine's state")
    wrong = [place + 1 for place in found.wrong]
    panels[0].plot(wrong, [0] * len(wrong), "x", color="red", label="a wrong answer")
    if wrong:
        panels[0].legend(fontsize="small")
    panels[1].plot(places, found.values, ".-", color=BLUE)
    panels[1].set_ylabel(f"{found.component}\n{100 * found.explained:.0f} % explained", fontsize=8)
    for number, (name, values) in enumerate(found.strengths.items()):
        style = {"color": COLOURS[number % len(COLOURS)], "linewidth": 1}
        panels[-1].plot(places, values, label=name if number < _IN_LEGEND else None, **style)
    if found.strengths:
        panels[-1].legend(fontsize="xx-small", ncols=3)
        panels[-1].set_ylabel("write strength", fontsize=8)
    if len(places) <= _SHOWN_SYMBOLS:
        panels[-1].set_xticks(places, found.symbols, fontsize="small")
    _save(figure, path)


def _figure(height: float) -> Figure:
    figure = Figure(figsize=(8, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as partial:
        figure.savefig(partial, format="png")
