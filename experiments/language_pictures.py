"""Pictures of a run on a formal language: accuracy over lengths, and a trace through a string."""

from pathlib import Path

import numpy as np

from fastweights.evaluation.learning_curves import new_figure, save
from fastweights.evaluation.palette import BLUE, COLOURS, ORANGE
from fastweights.experiments.language_trace import Trace

_IN_LEGEND = 9
_SHOWN_SYMBOLS = 80  # more do not fit below an axis


def draw_lengths(points: np.ndarray, path: Path) -> None:
    """Draw a point for each length: the share of its sequences that are all right."""
    figure = new_figure(3)
    labels = {"xlabel": "length", "ylabel": "sequences right, of 1"}
    axes = figure.add_subplot(xscale="log", ylim=(-0.05, 1.05), **labels)
    axes.plot(*points.T, ".", color=BLUE)
    axes.grid(alpha=0.3)
    save(figure, path)


def draw_trace(found: Trace, title: str, path: Path) -> None:
    """Draw the machine, the number that follows it, and the write strengths, over the string."""
    count = 3 if found.strengths else 2
    figure, places = new_figure(1.6 * count + 1), np.arange(1, len(found.symbols) + 1)
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
        panels[-1].set_ylabel("strength or gate", fontsize=8)
    if len(places) <= _SHOWN_SYMBOLS:
        panels[-1].set_xticks(places, found.symbols, fontsize="small")
    save(figure, path)
