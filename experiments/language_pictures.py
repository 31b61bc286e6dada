"""Pictures of a run on a formal language: accuracy over lengths, and a trace through a string."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastweights.evaluation.learning_curves import (
    line_styles,
    literal,
    new_figure,
    save,
    with_legend,
)
from fastweights.evaluation.palette import BLUE, ORANGE
from fastweights.experiments.language_trace import Trace

_MOST_LINES = 7  # strengths and gates; more are rows of a heat map
_SHOWN_SYMBOLS = 80  # more do not fit below an axis
_SPLITS = {
    "bin0": "Bin0, lengths of training",
    "bin1": "Bin1, longer strings",
    "length": "strings drawn of a length",
}


def draw_lengths(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the figure of `lengths_figure` into the PNG `path`."""
    save(lengths_figure(rows), path)


def lengths_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A point a length and split: the share of its sequences that are all right, in percent.

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


def draw_trace(found: Trace, title: str, path: Path) -> None:
    """Write the figure of `trace_figure` into the PNG `path`."""
    save(trace_figure(found, title), path)


def trace_figure(found: Trace, title: str) -> Any:
    """The machine, the number that follows it, and the write strengths, over the string."""
    from matplotlib.ticker import MaxNLocator

    count = 3 if found.strengths else 2
    figure, places = new_figure(1.8 * count + 1), np.arange(1, len(found.symbols) + 1)
    figure.suptitle(literal(title), fontsize="medium")
    panels = figure.subplots(count, sharex=True)
    panels[0].step(places, found.levels, where="mid", color=ORANGE)
    panels[0].set_ylabel("state of the\nlanguage's machine")
    panels[0].yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if wrong := [place + 1 for place in found.wrong]:
        where = panels[0].get_xaxis_transform()
        look = {"color": "black", "label": "a wrong answer", "transform": where, "clip_on": False}
        panels[0].plot(wrong, [0] * len(wrong), "x", **look)
    panels[1].plot(places, found.values, ".-", color=BLUE)
    panels[1].set_ylabel(literal(f"memory:\n{found.component}"))
    share = f"{100 * found.explained:.0f} % of its variance lies between the machine's states"
    panels[1].set_title(share, fontsize="small")
    if len(found.strengths) > _MOST_LINES:
        _draw_map(figure, panels[2], found.strengths, len(places))
    elif found.strengths:
        _draw_strengths(panels[2], places, found.strengths)
    panels[-1].set_xlabel("symbols of the string, in order")
    if len(places) <= _SHOWN_SYMBOLS:
        panels[-1].set_xticks(places, found.symbols, fontsize="small")
    else:
        panels[-1].set_xlabel("position in the string")
    return with_legend(figure)


def _draw_strengths(
    axes: Any, places: np.ndarray, strengths: Mapping[str, Sequence[float]]
) -> None:
    """A line each, which the legend names."""
    styles = line_styles(list(strengths))
    for name, values in strengths.items():
        axes.plot(places, values, label=literal(name), linewidth=1, markersize=3, **styles[name])
    axes.set_ylabel("strength or gate")


def _draw_map(
    figure: Any, axes: Any, strengths: Mapping[str, Sequence[float]], length: int
) -> None:
    """A row each, named by what it is: a legend of so many lines could not be read."""
    values = np.array(list(strengths.values()))
    low, high = min(0.0, values.min()), max(1.0, values.max())
    extent = (0.5, length + 0.5, len(values) - 0.5, -0.5)
    look = {"aspect": "auto", "cmap": "cividis", "vmin": low, "vmax": high, "extent": extent}
    image = axes.imshow(values, interpolation="nearest", **look)
    figure.colorbar(image, ax=axes, label="strength or gate", fraction=0.03, pad=0.01)
    kinds = [name.partition("[")[0] for name in strengths]
    begins = {kind: kinds.index(kind) for kind in dict.fromkeys(kinds)}
    names = [f"{kind}\n({kinds.count(kind)} units)".replace("_", " ") for kind in begins]
    middles = [begins[kind] + (kinds.count(kind) - 1) / 2 for kind in begins]
    axes.set_yticks(middles, names, fontsize="small")
