"""Learning curves of one run or of several seeds, for all figures of the project.

Colours are safe for colour-blind readers. Every line has its own dash pattern and marker, so that
black-and-white prints are readable.
"""

import itertools
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastweights.evaluation.palette import BLUE, COLOURS, ORANGE
from fastweights.evaluation.training_returns import FULL_GAME, Unit, recent_means, shortfall
from fastweights.host import one_line, replacing

Styles = Mapping[str, dict[str, Any]]  # line styles, by label

_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_GRID = 200  # points
_REFERENCES = COLOURS[2:]
_FAR = 2.0  # games beyond this multiple of the range of 99 % do not stretch the axis
_LEGEND_COLUMNS = 5  # at most
_FEW_POINTS = 20  # curves with fewer points are drawn with markers, too


class Curve(NamedTuple):
    """Points [N] of one seed, in order of x."""

    x: np.ndarray
    y: np.ndarray


class Band(NamedTuple):
    """Mean, minimum and maximum over several seeds [N], where all of them have points."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def band(curves: list[Curve]) -> Band | None:
    """Return mean and range over the seeds; None without points or without a common x."""
    curves = [one for one in curves if len(one.x)]
    if not curves:
        return None
    begin, end = max(one.x[0] for one in curves), min(one.x[-1] for one in curves)
    if begin > end:
        return None
    x = curves[0].x if len(curves) == 1 else np.linspace(begin, end, _GRID)
    values = np.stack([np.interp(x, one.x, one.y) for one in curves])
    return Band(x, values.mean(0), values.min(0), values.max(0))


def line_styles(labels: Sequence[str]) -> Styles:
    """Return a colour, dash pattern and marker per label; the first 28 are all different."""
    return {
        label: {
            "color": COLOURS[index % len(COLOURS)],
            "linestyle": _DASHES[index % len(_DASHES)],
            "marker": _MARKERS[index % len(_MARKERS)],
        }
        for index, label in enumerate(dict.fromkeys(labels))
    }


def draw_seeds(
    axes: Any, curves: list[Curve], style: dict[str, Any], label: str, bands: bool = True
) -> None:
    """Draw the mean of several seeds where all have points, thin lines per seed, and a band.

    Without `bands`, only the mean is drawn.
    """
    together = band(curves)
    if bands and len(curves) > 1:
        for one in curves:
            axes.plot(*one, color=style["color"], linewidth=0.6, alpha=0.6)
    if together is None:
        return
    if bands and len(curves) > 1:
        axes.fill_between(*together[:1], *together[2:], color=style["color"], alpha=0.15)
    draw_line(axes, together[:2], style, label)


def draw_line(axes: Any, points: Sequence[np.ndarray], style: dict[str, Any], label: str) -> None:
    """Draw a line with its name in the legend; about eight points have markers."""
    x, y = points
    every = max(1, len(x) // 8)
    axes.plot(
        x, y, label=literal_text(label), markevery=every, markersize=5, linewidth=1.6, **style
    )


def draw_learning_curve(
    logs: Mapping[str, list[Any]],
    unit: Unit,
    num_envs: int,
    title: str,
    frames_per_step: int,
    references: Mapping[str, float],
) -> Any:
    """Return a Matplotlib figure of the returns of one unit over agent steps.

    Args:
        logs: Columns as `read_logs` returns them.
        unit: Unit of the returns, from `measured_unit`.
        num_envs: Number of training environments; the mean starts after as many games or lives.
        title: The title.
        frames_per_step: Emulator frames per agent step. Above 1, an upper axis shows frames.
        references: Returns of the same unit to draw as horizontal lines, by name, e.g.
            `{"random play": 163.9}`.
    """
    figure = new_figure(5)
    axes = figure.add_subplot()
    if unit is FULL_GAME:
        _plot_games(axes, logs)
    _plot_recent(axes, recent_means(logs, unit, num_envs), unit)
    for (name, value), colour in zip(references.items(), itertools.cycle(_REFERENCES)):
        label = f"{name} ({value:,.{1 if abs(value) >= 10 else 2}f})"
        axes.axhline(value, color=colour, linestyle="--", linewidth=1.2, label=label)
    _label(axes, title, unit, frames_per_step)
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=3, fontsize="small")
    if said := shortfall(logs, num_envs):
        figure.supxlabel(textwrap.fill(str(said), 110), fontsize="small")
    return figure


def new_figure(height: float, width: float = 8) -> Any:
    """Return a Matplotlib figure, sized in inches, that needs no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def with_legend(figure: Any) -> Any:
    """Return `figure`, made taller, with one legend below all axes."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= {label: h for label, h in zip(labels, handles, strict=True) if label not in found}
    labels = [textwrap.fill(label, 80, drop_whitespace=False) for label in found]
    for columns in range(min(_LEGEND_COLUMNS, len(found)), 0, -1):
        legend = figure.legend(found.values(), labels, loc="outside lower center", ncols=columns)
        size = legend.get_window_extent()
        if columns == 1 or size.width <= 0.95 * figure.bbox.width:
            figure.set_figheight(figure.get_figheight() + size.height / figure.dpi)
            break
        legend.remove()
    return figure


def save_figure(figure: Any, path: Path) -> None:
    """Write a PNG. Raises `OSError`."""
    with replacing(Path(path)) as partial:
        figure.savefig(partial, format="png")


def _plot_games(axes: Any, logs: Mapping[str, list[Any]]) -> None:
    games = [
        (step, value)
        for step, values in zip(logs.get("step", ()), logs.get("episode_returns", ()), strict=False)
        if isinstance(values, tuple)
        for value in values
    ]
    if not games:
        return
    steps, values = np.array(games, float).T
    low, high = values.min(), np.percentile(values, 99)
    near = values <= high + _FAR * (high - low)
    style = {"color": BLUE, "alpha": 0.25, "linestyle": ""}
    axes.plot(steps[near], values[near], marker=".", label="one full game", **style)
    if not near.all():
        top = np.full((~near).sum(), values[near].max() + 0.05 * (high - low))
        label = f"{len(top)} above the axis, at most {values.max():,.0f}"
        axes.plot(steps[~near], top, marker="^", label=label, **style)


def _plot_recent(axes: Any, points: Sequence[tuple[int, float]], unit: Unit) -> None:
    """Draw a line and, if there are few points, the points."""
    marker = "o" if len(points) <= _FEW_POINTS else None
    label = f"mean of up to 100 recent {unit.plural}"
    axes.plot(*zip(*points, strict=True), color=ORANGE, linewidth=2, marker=marker, label=label)


def _label(axes: Any, title: str, unit: Unit, frames_per_step: int) -> None:
    from matplotlib.ticker import EngFormatter

    axes.set_title(textwrap.fill(title, 70))
    axes.set_xlabel("agent steps")
    axes.set_ylabel(f"return of a {unit.name} (undiscounted, unclipped)")
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    if frames_per_step > 1:
        convert = _scaling(frames_per_step), _scaling(1 / frames_per_step)
        upper = axes.secondary_xaxis("top", functions=convert)
        upper.set_xlabel(f"emulator frames (agent steps × {frames_per_step})")
        upper.xaxis.set_major_formatter(EngFormatter(sep=" "))


def _scaling(factor: float) -> Callable[[Any], Any]:
    return lambda values: values * factor


def literal_text(text: str) -> str:
    """Return text that Matplotlib draws literally, without formulas or hidden legend entries."""
    lines = (one_line(line).replace("$", r"\$") for line in text.split("\n"))
    return re.sub("^(?=_|$)", " ", "\n".join(lines))
