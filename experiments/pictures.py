"""Figures of runs: a table as points with intervals, curves over seeds, accuracy over lengths."""

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastweights.evaluation import (
    BLUE,
    COLOURS,
    ORANGE,
    Curve,
    draw_seeds,
    line_styles,
    literal_text,
    new_figure,
    with_legend,
)
from fastweights.experiments.rows import Row

_PERCENT = (-3.0, 103.0)  # axis range of percentages, whatever the values
_NARROWEST = 0.1  # minimum axis span relative to its largest value, lest small differences look big
_NAME, _PANEL, _TITLE = 48, 60, 80  # characters per line
_MANY = 10_000  # numbers from which an axis uses k and M
_WORDS = 0.25  # height of a row of panels without curves
NOTHING = "nothing to draw yet"

_SPLITS = {
    "bin0": "Bin0, lengths of training",
    "bin1": "Bin1, longer strings",
    "length": "strings drawn of a length",
}


def rows_figure(rows: Sequence[Row], unit: str, title: str, panel: str = "") -> Any:
    """Return a figure with one line per row: seeds, mean, 95 % interval, and the paper's value.

    If some rows have runs of ours, the others appear only in the table.

    Args:
        rows: At least one.
        unit: What the values are. A percent axis spans 0 to 100.
        title: The title.
        panel: The label whose values each have a panel, with a separate axis.

    Returns:
        A Matplotlib figure.
    """
    ours = [row for row in rows if row.values or row.failed]
    shown = ours or [row for row in rows if row.published]
    if not shown:
        return _words(title, "No run has measured anything yet.")
    names, shared = _names(shown, panel)
    panels: dict[str, list[int]] = {}
    for place, row in enumerate(shown):
        heading = textwrap.fill(str(row.labels.get(panel, "")), _PANEL)
        panels.setdefault(heading, []).append(place)
    lines = sum(1 + name.count("\n") for name in names)
    lines += sum(text.count("\n") for text in (shared, *panels))
    shared_axis = "percent" in unit
    figure = new_figure(1.0 + (0.4 if shared_axis else 0.7) * len(panels) + 0.2 * lines)
    ratios = [0.5 + len(places) for places in panels.values()]
    grid = figure.subplots(len(panels), sharex=shared_axis, squeeze=False, height_ratios=ratios)
    every = grid[:, 0]
    heading = filter(None, (textwrap.fill(title, _TITLE), shared))
    figure.suptitle("\n".join(map(literal_text, heading)), fontsize="medium")
    for axes, (name, places) in zip(every, panels.items(), strict=True):
        if name:
            axes.set_title(literal_text(name), fontsize="medium")
        _draw_points(axes, [shown[place] for place in places])
        axes.set_yticks(range(len(places)), [names[place] for place in places], fontsize="small")
        axes.set_ylim(len(places) - 0.5, -0.5)  # the first above; rows that failed too
        _set_range(axes, unit)
        axes.grid(axis="x", alpha=0.3)
    left_out = len(rows) - len(shown)
    said = f"{left_out} of the table's {len(rows)} rows have no run here and are not drawn"
    every[-1].set_xlabel(f"{unit}\n({said})" if left_out else unit)
    return with_legend(figure)


def _words(title: str, words: str) -> Any:
    """Return a text-only figure for when there is nothing to draw: axes would be arbitrary."""
    figure = new_figure(1)
    figure.text(
        0.5, 0.5, "\n".join(filter(None, (literal_text(title), words))), ha="center", va="center"
    )
    return figure


def _draw_points(axes: Any, rows: Sequence[Row]) -> None:
    for place, row in enumerate(rows):
        values = list(row.values.values())
        if len(values) > 1:
            axes.plot(values, [place] * len(values), ".", color=BLUE, alpha=0.5, label="a seed")
        if row.interval:
            axes.plot(row.interval, [place, place], color=BLUE, linewidth=2, label="95 % interval")
        if row.mean is not None:
            name = "mean of the seeds" if len(values) > 1 else "one seed"
            fill = BLUE if len(values) > 1 else "none"
            axes.plot(row.mean, place, "D", color=BLUE, markerfacecolor=fill, label=name)
        else:
            words = "failed" if row.failed else ""
            where = axes.get_yaxis_transform()
            axes.text(0.01, place, words, va="center", fontsize="small", transform=where)
        if row.published:
            style = {"color": ORANGE, "fmt": "o", "markerfacecolor": "none", "label": "paper"}
            axes.errorbar(row.published.mean, place + 0.25, xerr=row.published.std, **style)


def _set_range(axes: Any, unit: str) -> None:
    """Show the full 0 to 100 percent; for other units, a range where equal values look equal."""
    if "percent" in unit:
        axes.set_xlim(*_PERCENT)
        return
    low, high = axes.get_xlim()
    missing = _NARROWEST * max(abs(low), abs(high)) - (high - low)
    if missing > 0:
        axes.set_xlim(low - missing / 2, high + missing / 2)


def _names(rows: Sequence[Row], panel: str) -> tuple[list[str], str]:
    """Return the labels in which each row differs, and the labels that all rows share.

    The label `panel` is left out: it is the panel's title.
    """
    labels = [{n: str(value) for n, value in row.labels.items() if n != panel} for row in rows]
    differ = [name for name in labels[0] if len({one[name] for one in labels}) > 1]
    differ = differ or list(labels[0])  # a single row
    shared = [text for name, text in labels[0].items() if name not in differ]
    names = [_wrapped(_once([one[name] for name in differ]), _NAME) for one in labels]
    return names, textwrap.fill(" · ".join(shared), _TITLE)


def _once(texts: Sequence[str]) -> list[str]:
    """Return `texts` without near duplicates: LSTM and lstm, DeltaNet and delta_net."""
    plain = ["".join(filter(str.isalnum, text)).casefold() for text in texts]
    repeats = [one in plain[:place] and one.isidentifier() for place, one in enumerate(plain)]
    return [text for text, is_repeat in zip(texts, repeats, strict=True) if not is_repeat]


def _wrapped(texts: Sequence[str], width: int) -> str:
    return textwrap.fill(" · ".join(texts).replace("$", r"\$"), width)


class Panel(NamedTuple):
    """Learning curves of several seeds by name, and the labels of the axes."""

    curves: Mapping[str, list[Curve]]
    x: str
    y: str
    title: str = ""
    lengths: bool = False  # x holds lengths that double


def curves_figure(panels: Sequence[Sequence[Panel]], title: str) -> Any:
    """Return a figure with one line per name: the mean over seeds, where all have points.

    A name has the same line style in all `panels`, which are given row by row. Seeds and their band
    are drawn only if there are few names, so that bands do not hide each other.
    """
    across = len(panels[0])
    ratios = [1 if any(map(_has_curve, row)) else _WORDS for row in panels]
    figure = new_figure(0.6 + 4 * sum(ratios), 8 if across == 1 else 6 * across)
    figure.suptitle(literal_text(textwrap.fill(title, 45 * across + 25)))
    every = figure.subplots(len(panels), across, squeeze=False, height_ratios=ratios)
    names = dict.fromkeys(name for row in panels for panel in row for name in panel.curves)
    styles, bands = line_styles(list(names)), len(names) <= len(COLOURS)
    for axes, panel in zip(every.flat, itertools.chain.from_iterable(panels), strict=True):
        if panel.title:
            axes.set_title(literal_text(textwrap.fill(panel.title, _PANEL)))
        if not _has_curve(panel):
            axes.set_axis_off()
            axes.text(0.5, 0.5, NOTHING, ha="center", transform=axes.transAxes)
            continue
        for name, seeds in panel.curves.items():
            draw_seeds(axes, seeds, styles[name], name, bands)
        axes.set(xlabel=panel.x, ylabel=panel.y if axes in every[:, 0] else "")
        _format_x(axes, panel.lengths)
        axes.grid(alpha=0.3)
    return with_legend(figure)


def _has_curve(panel: Panel) -> bool:
    """Return whether a line has two points; axes around a single point would be arbitrary."""
    return any(len(one.x) > 1 for seeds in panel.curves.values() for one in seeds)


def _format_x(axes: Any, lengths: bool) -> None:
    """Start at 0, or show lengths on a logarithmic axis; write large numbers as 200 k."""
    from matplotlib.ticker import EngFormatter

    if lengths:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        return
    axes.set_xlim(left=0)
    if axes.get_xlim()[1] >= _MANY:
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))


def lengths_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a figure of the share of correct sequences, one point per length and split.

    `rows` have a `split`, a `length` and a `sequence_accuracy`.
    """
    figure = new_figure(3)
    axes = figure.add_subplot(xscale="log", ylim=(-5, 105))
    axes.set(xlabel="length of the sequence, symbols", ylabel="sequences right, percent")
    splits = dict.fromkeys(row["split"] for row in rows)
    styles = line_styles(list(splits))
    for split in splits:
        of_split = [row for row in rows if row["split"] == split]
        lengths = [row["length"] for row in of_split]
        shares = [100 * row["sequence_accuracy"] for row in of_split]
        look = {"linestyle": "", "markersize": 4, "label": _SPLITS.get(split, split)}
        axes.plot(lengths, shares, **styles[split] | look)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    return with_legend(figure)
