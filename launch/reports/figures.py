"""The figures of a report, as SVG whose text stays text.

Colours are safe for colour-blind readers, and every line has a dash pattern and a marker of its
own, so that a print in grey can be read.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from launch.failures import one_line
from launch.palette import COLOURS
from launch.reports.curves import AXES, RETURN, agent_steps, band, curve, hours
from launch.reports.runs import Group, Run
from launch.score_statistics import Estimate

Styles = Mapping[str, dict[str, Any]]  # of lines, by label

_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_HATCHES = ("", "///", "...")  # as many as share no factor with the colours


def line_styles(labels: Sequence[str]) -> Styles:
    """A colour, a dash pattern and a marker each; no two of the first 28 share all three."""
    return {
        label: {
            "color": COLOURS[index % len(COLOURS)],
            "linestyle": _DASHES[index % len(_DASHES)],
            "marker": _MARKERS[index % len(_MARKERS)],
        }
        for index, label in enumerate(dict.fromkeys(labels))
    }


def learning_curves(groups: Sequence[Group], styles: Styles) -> bytes:
    """One game: mean over seeds, seeds as thin lines and a band, over three x axes."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for axes, (name, x) in zip(figure.subplots(1, 3, sharey=True), AXES.items(), strict=True):
        for group in groups:
            curves = [curve(run, RETURN, x) for run in group.runs]
            _draw_band(axes, curves, styles[group.label], group.label)
        axes.set_xlabel(name)
        if name != "hours":
            axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        axes.grid(alpha=0.3)
        axes.locator_params(axis="x", nbins=4)
    figure.axes[0].set_ylabel("return, mean of the last 100 games")
    _legend(figure)
    return _svg(figure)


def throughput(runs: Sequence[Run], styles: Styles) -> bytes:
    """Agent steps a second over hours, and policy lag over agent steps."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for run in runs:
        style = styles[run.name]
        _plot(left, curve(run, "agent_steps_per_second", hours), style, run.name)
        _plot(right, curve(run, "policy_lag", agent_steps), style, run.name)
    left.set_xlabel("hours")
    left.set_ylabel("agent steps a second")
    right.set_xlabel("agent steps")
    right.set_ylabel("policy lag, updates")
    right.xaxis.set_major_formatter(EngFormatter(sep=" "))
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    _legend(figure)
    return _svg(figure)


def improvements(series: Mapping[str, Mapping[str, float]], one: str, other: str) -> bytes:
    """Bars by game, the first series' best on top; percent, logarithmic beyond 100 %."""
    order: dict[str, float] = {}
    for values in series.values():
        order = values | order
    games = sorted(order, key=lambda game: order[game])
    figure = Figure(figsize=(8, 1.4 + 0.24 * len(games) * len(series)), layout="constrained")
    axes, height = figure.add_subplot(), 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        there = [game for game in games if game in values]
        y = np.array([games.index(game) for game in there]) + height * (len(series) / 2 - index)
        widths = [values[game] for game in there]
        colour, hatch = COLOURS[index % len(COLOURS)], _HATCHES[index % len(_HATCHES)]
        bars = axes.barh(
            y,
            widths,
            height * 0.9,
            label=_literal(name),
            color=colour,
            hatch=hatch,
            edgecolor="white",
        )
        axes.bar_label(bars, [f"{width:+,.0f} %" for width in widths], padding=3, fontsize=8)
    axes.set_yticks(range(len(games)), [_literal(game) for game in games])
    axes.set_xscale("symlog", linthresh=100)
    axes.margins(x=0.2)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f} %")
    axes.set_xlabel(f"relative improvement of {one} over {other}")
    axes.grid(alpha=0.3, axis="x")
    _legend(figure)
    return _svg(figure)


def profiles(levels: np.ndarray, found: Mapping[str, Estimate]) -> bytes:
    """Share of runs above each of `levels` (human-normalised), with its interval as a band."""
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    axes, styles = figure.add_subplot(), line_styles(list(found))
    for name, profile in found.items():
        color = styles[name]["color"]
        axes.fill_between(levels, profile.low, profile.high, color=color, alpha=0.15)
        _plot(axes, (levels, profile.value), styles[name], name)
    axes.set_xlabel("human-normalised score")
    axes.set_ylabel("share of runs above it")
    axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.3)
    _legend(figure)
    return _svg(figure)


def _draw_band(axes: Any, curves: list, style: dict[str, Any], label: str) -> None:
    together = band(curves)
    if len(curves) > 1:
        for one in curves:
            axes.plot(*one, color=style["color"], linewidth=0.6, alpha=0.6)
    if together is None:
        return
    if len(curves) > 1:
        axes.fill_between(*together[:1], *together[2:], color=style["color"], alpha=0.15)
    _plot(axes, together[:2], style, label)


def _plot(axes: Any, points: Sequence[np.ndarray], style: dict[str, Any], label: str) -> None:
    x, y = points
    every = max(1, len(x) // 8)
    axes.plot(x, y, label=_literal(label), markevery=every, markersize=5, linewidth=1.6, **style)


def _literal(text: str) -> str:
    """What Matplotlib draws as `text`: dollars make no formula, legends leave nothing out."""
    return re.sub("^(?=_|$)", " ", one_line(text).replace("$", r"\$"))


def _legend(figure: Figure) -> None:
    found: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= {label: h for label, h in zip(labels, handles, strict=True) if label not in found}
    if found:
        figure.legend(
            found.values(), found.keys(), loc="outside lower center", ncols=min(4, len(found))
        )


def _svg(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # Text as text, to be read out and searched; ids that are the same at every run.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fastweights"}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    return buffer.getvalue()
