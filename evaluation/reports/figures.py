"""The figures of a report, as SVG whose text stays text.

Figures are as wide as the page, and axes without data are not drawn.
"""

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from fastweights.evaluation.learning_curves import (
    Curve,
    Styles,
    draw_line,
    draw_seeds,
    line_styles,
    literal_text,
    with_legend,
)
from fastweights.evaluation.palette import BLUE, COLOURS, ORANGE
from fastweights.evaluation.reports.curves import (
    AXES,
    agent_steps,
    curve,
    hours,
    return_curve,
    smoothed,
)
from fastweights.evaluation.reports.runs import Group, LoggedRun
from fastweights.evaluation.statistics import Estimate
from fastweights.evaluation.training_returns import Unit
from fastweights.host import one_line

_WIDTH = 10.0  # inches, 992 pixels on the page
_BAR, _ALL_BARS = 0.36, 10.4  # inches; together at most 1,200 pixels
_TIMES = ((1, "hours"), (60, "minutes"), (3600, "seconds"))
_LINEAR = 100  # percent; beyond it, the axis is logarithmic


def learning_curves(groups: Sequence[Group], unit: Unit, styles: Styles) -> Figure | None:
    """Draw one game: mean over seeds, thin lines per seed, and a band; None without points."""
    has_frames = any(run.frames_per_step > 1 for group in groups for run in group.runs)
    curves = {
        (name, ""): {g.label: [return_curve(run, unit, x) for run in g.runs] for g in groups}
        for name, x in AXES.items()
        if name != "emulator frames" or has_frames
    }
    figure = _drawn(curves, styles, height=3.8, sharey=True)
    if figure is not None:
        figure.axes[0].set_ylabel(f"return of a {unit.name},\nmean of up to 100 recent ones")
    return figure


Seeds = Mapping[str, list[Curve]]  # curves of a group's seeds, by the group's name
# Labels of the x and y axes; the logs' column and the x axis.
Panels = Mapping[tuple[str, str], tuple[str, Callable[[LoggedRun], np.ndarray]]]
_THROUGHPUT: Panels = {
    ("hours", "agent steps per second"): ("agent_steps_per_second", hours),
    ("agent steps", "policy lag, updates"): ("policy_lag", agent_steps),
}
_LEARNER: Panels = {
    ("agent steps", "KL divergence\nper update, nats"): ("approx_kl", agent_steps),
    ("agent steps", "share of ratios\nclipped"): ("clip_fraction", agent_steps),
    ("agent steps", "explained variance\nof value targets"): ("explained_variance", agent_steps),
}


def throughput(groups: Mapping[str, Group], styles: Styles) -> Figure | None:
    """Draw agent steps per second over time, and policy lag over agent steps; None without either.

    `groups`: by name. If the lag is 0 in all runs, as in lockstep, it has no panel.
    """
    curves = _curves(groups, _THROUGHPUT)
    *_, lag = _THROUGHPUT
    if not any(one.y.any() for seeds in curves[lag].values() for one in seeds):
        del curves[lag]
    figure = _drawn(curves, styles)
    for axes in figure.axes if figure else ():
        axes.set_ylim(bottom=0)
    return figure


def learner(groups: Mapping[str, Group], styles: Styles) -> Figure | None:
    """Draw policy changes and value fit over agent steps; None if not logged.

    `groups`: by name.
    """
    return _drawn(_curves(groups, _LEARNER), styles)


def _curves(groups: Mapping[str, Group], panels: Panels) -> dict[tuple[str, str], Seeds]:
    """Return the curves of each group that has any, by panel."""
    curves = {
        labels: {name: _of_seeds(group, column, x) for name, group in groups.items()}
        for labels, (column, x) in panels.items()
    }
    return {labels: {n: seeds for n, seeds in by.items() if seeds} for labels, by in curves.items()}


def _of_seeds(group: Group, column: str, x: Callable[[LoggedRun], np.ndarray]) -> list[Curve]:
    """Return the non-empty curves, smoothed."""
    curves = [curve(run, column, x) for run in group.runs]
    if column == "explained_variance":  # the first updates have values far below
        curves = [one._replace(y=one.y.clip(-1, 1)) for one in curves]
    return [smoothed(one) for one in curves if len(one.x)]


def _drawn(
    curves: Mapping[tuple[str, str], Seeds],
    styles: Styles,
    height: float = 3.5,
    sharey: bool = False,
) -> Figure | None:
    """Draw all panels that have a curve side by side; None if there are none."""
    curves = {labels: by for labels, by in curves.items() if any(map(_is_curve, by.values()))}
    if not curves:
        return None
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    row = figure.subplots(1, len(curves), sharey=sharey, squeeze=False)[0]
    for axes, ((x_label, y_label), found) in zip(row, curves.items(), strict=True):
        _draw_groups(axes, found, styles, x_label)
        axes.set_ylabel(y_label)
    return with_legend(figure)


def _draw_groups(axes: Any, groups: Seeds, styles: Styles, x_label: str) -> None:
    """Draw one line per group, and label the x axis."""
    for name, seeds in groups.items():
        draw_seeds(axes, seeds, styles[name], name, bands=len(groups) <= len(COLOURS))
    axes.set_xlabel(x_label)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(alpha=0.3)
    if x_label == "hours":
        _readable_time(axes)
    else:
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))


def improvements(found: Mapping[str, Estimate], one: str, other: str) -> Figure:
    """Draw one bar per game with its interval, best first; percent, logarithmic beyond 100 %."""
    games = sorted(found, key=lambda game: float(found[game].value))
    values, lows, highs = np.array([found[game] for game in games], float).T
    height = min(_BAR, _ALL_BARS / len(games))
    figure = Figure(figsize=(_WIDTH, 1.2 + height * len(games)), layout="constrained")
    axes, y = figure.add_subplot(), np.arange(len(games))
    axes.barh(y, values, 0.6, color=np.where(values < 0, ORANGE, BLUE))
    errors = np.maximum(0, (values - lows, highs - values))  # of equal returns: rounding
    axes.errorbar(values, y, xerr=errors, fmt="none", color="black", capsize=3)
    if np.nanmax(np.abs([values, lows, highs])) > _LINEAR:
        axes.set_xscale("symlog", linthresh=_LINEAR)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+,.0f} %" if value else "0 %")
    axes.set_xlabel(f"relative improvement of {one} over {other}")
    axes.grid(alpha=0.3, axis="x")
    size = min(10.0, 55 * height)
    names = [literal_text(textwrap.fill(one_line(game), 30)) for game in games]
    axes.set_yticks(y, names, fontsize=size)
    axes.set_ylim(-0.6, len(games) - 0.4)
    right = axes.twinx()
    right.set_ylim(axes.get_ylim())
    right.set_yticks(y, [f"{value:+,.0f} %" for value in values], fontsize=size)
    right.tick_params(length=0)
    return figure


def profiles(levels: np.ndarray, found: Mapping[str, Estimate]) -> Figure:
    """Draw the fraction of runs above each of `levels` (human-normalised), with interval bands."""
    figure = Figure(figsize=(_WIDTH, 3.8), layout="constrained")
    axes, styles = figure.add_subplot(), line_styles(list(found))
    for name, profile in found.items():
        color = styles[name]["color"]
        axes.fill_between(levels, profile.low, profile.high, color=color, alpha=0.15)
        draw_line(axes, (levels, profile.value), styles[name], name)
    axes.set_xlabel("human-normalised score")
    axes.set_ylabel("share of runs above it")
    axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.3)
    return with_legend(figure)


def svg(figure: Figure) -> bytes:
    """Return the drawing as the content of a file."""
    buffer = io.BytesIO()
    # Keep text as text, for screen readers and search; ids are the same each time.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fastweights"}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    return buffer.getvalue()


def _is_curve(seeds: Sequence[Curve]) -> bool:
    """Return whether any curve has two points; axes around a single point are arbitrary."""
    return any(len(one.x) > 1 for one in seeds)


def _readable_time(axes: Any) -> None:
    """Label an axis of hours in minutes or seconds if it is short."""
    longest = axes.get_xlim()[1]
    factor, name = next((unit for unit in _TIMES if longest * unit[0] >= 1), _TIMES[-1])
    step = MaxNLocator(4).tick_values(0, longest * factor)
    axes.set_xticks([value / factor for value in step if value <= longest * factor])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value * factor:,.4g}")
    axes.set_xlabel(name)
