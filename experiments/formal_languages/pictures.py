"""A figure of a trace through a string of a formal language."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastweights.evaluation import (
    BLUE,
    line_styles,
    literal_text,
    new_figure,
    save_figure,
    with_legend,
)
from fastweights.experiments.formal_languages.states import (
    LONGEST_WRITTEN,
    draw_states,
    panel_height,
)
from fastweights.experiments.formal_languages.trace import Trace, trace, write_csv
from fastweights.experiments.sequences.saved import open_sequence_model
from fastweights.host import Console, user_input

_MOST_LINES = 7  # strengths and gates; more are drawn as rows of a heat map
_MOST_LETTERS = 120  # maximum letters of words, with spaces, along an axis without rotation


def show_trace(path: Path, command: str, text: str) -> int:
    """Trace the model of the run at `path` through `text`; write trace.csv and trace.png.

    `command`: the command that trains on the language. Prints the result, and returns the exit
    code. Raises `UserError` if there is no such run.
    """
    model, options = open_sequence_model(path, command)
    with user_input():
        found = trace(model, options, text)
    write_csv(found, path / "trace.csv")
    figure = trace_figure(found, f"{options.core} on {options.task.title}")
    save_figure(figure, path / "trace.png")
    Console().say(
        f"{found.component} follows the machine best: {100 * found.explained:.1f} % of its "
        f"variance lies between {found.groups}\nwrong answers: {len(found.wrong)} of "
        f"{sum(one is not None for one in found.expected)}\n{path / 'trace.png'}\n"
        f"{path / 'trace.csv'}"
    )
    return 0


def trace_figure(found: Trace, title: str) -> Any:
    """Return a figure along the string: the machine, the number that tracks it, the strengths."""
    count, places = 3 if found.strengths else 2, np.arange(1, len(found.symbols) + 1)
    heights = [panel_height(found.language, found.states), *[1.8] * (count - 1)]
    figure = new_figure(sum(heights) + 1.2)
    figure.suptitle(literal_text(title), fontsize="medium")
    panels = figure.subplots(count, sharex=True, height_ratios=heights)
    draw_states(panels[0], found.language, found.states)
    _mark_answers(panels[0], found)
    panels[1].plot(places, found.values, ".-", color=BLUE)
    panels[1].set_ylabel(literal_text(f"memory:\n{found.component}"))
    share = f"{100 * found.explained:.0f} % of its variance lies between {found.groups}"
    panels[1].set_title(share, fontsize="small")
    if len(found.strengths) > _MOST_LINES:
        _draw_map(figure, panels[2], found.strengths, len(places))
    elif found.strengths:
        _draw_strengths(panels[2], places, found.strengths)
    panels[-1].set_xlabel("symbols of the string, in order")
    if len(places) <= LONGEST_WRITTEN:
        _write(panels[-1], found.symbols)
    else:
        panels[-1].set_xlabel("position in the string")
    return with_legend(figure)


def _mark_answers(axes: Any, found: Trace) -> None:
    """Write the correct answers above the machine, and mark the model's wrong answers."""
    if wrong := [place + 1 for place in found.wrong]:
        where = axes.get_xaxis_transform()
        look = {"color": "black", "label": "a wrong answer", "transform": where, "clip_on": False}
        axes.plot(wrong, [0] * len(wrong), "x", **look)
    if len(found.expected) <= LONGEST_WRITTEN:
        above = axes.secondary_xaxis("top")
        above.set_xlabel("right answers", fontsize="small")
        _write(above, ["" if answer is None else answer for answer in found.expected])


def _write(axes: Any, words: Sequence[str]) -> None:
    """Write a word at each position of an axis, rotated if this takes less space."""
    turn = max(map(len, words)) > 1 and sum(len(word) + 1 for word in words) > _MOST_LETTERS
    places = np.arange(1, len(words) + 1)
    axes.set_xticks(places, list(map(literal_text, words)), fontsize="small", rotation=90 * turn)


def _draw_strengths(
    axes: Any, places: np.ndarray, strengths: Mapping[str, Sequence[float]]
) -> None:
    """Draw one line each, named in the legend."""
    styles = line_styles(list(strengths))
    for name, values in strengths.items():
        axes.plot(
            places, values, label=literal_text(name), linewidth=1, markersize=3, **styles[name]
        )
    axes.set_ylabel("strength or gate")


def _draw_map(
    figure: Any, axes: Any, strengths: Mapping[str, Sequence[float]], length: int
) -> None:
    """Draw one row each: a legend of so many lines would be unreadable."""
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
