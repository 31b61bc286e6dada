"""The panel of a trace that draws the machine: counters, labels, or the contents of a stack.

A language declares whether its state is a stack, and which parts of it do not count. Among the
other parts, whole numbers and truth values are counters. Everything else is a label, such as a
permutation, or a phase if it accompanies a number.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from fastweights.evaluation import COLOURS, ORANGE, line_styles, literal_text
from fastweights.tasks import Language

LONGEST_WRITTEN = 80  # maximum positions if text is written at each; more do not fit
_MOST_LABELS = 12  # on an axis; more are written beside the line
_MOST_LINES = 2  # counters; more are drawn as rows of cells, because lines would overlap
_MOST_COLOURS = 6  # different symbols on stacks; more are written in the cells

Stack = Sequence[Hashable]


def draw_states(axes: Any, language: Language, states: Sequence[Hashable]) -> None:
    """Draw the states of the language's machine, at positions 1, 2, ..."""
    axes.set_ylabel("state of the\nlanguage's machine")
    if language.is_stack:
        _draw_stacks(axes, _stacks(states))
        return
    columns = _columns(states, language.untraced)
    numbers = {
        name: [int(value) for value in values]
        for name, values in columns.items()
        if all(isinstance(value, int) for value in values)
    }
    others = [values for name, values in columns.items() if name not in numbers]
    labels = [" ".join(str(values[place]) for values in others) for place in range(len(states))]
    if len(numbers) > _MOST_LINES:
        _draw_rows(axes, numbers)
    elif numbers:
        _draw_counters(axes, numbers)
        _draw_phases(axes, labels)
    else:
        _draw_labels(axes, labels)


def panel_height(language: Language, states: Sequence[Hashable]) -> float:
    """Return the height of the panel in inches."""
    deepest = max(map(len, _stacks(states)), default=0) if language.is_stack else 0
    return 1.8 + min(1.8, 0.06 * deepest)


def _stacks(states: Sequence[Hashable]) -> list[Stack]:
    """Return the contents of each stack as strings, from the bottom."""
    return [tuple(map(str, state)) for state in states]


def _columns(
    states: Sequence[Hashable], untraced: Sequence[str]
) -> Mapping[str, Sequence[Hashable]]:
    """Return each part's values by name; states without common parts are a single part."""
    parts = [_parts(state, untraced) for state in states]
    names = list(parts[0])
    if any(list(part) != names for part in parts):
        return {"": list(map(str, states))}
    return {name: [part[name] for part in parts] for name in names}


def _parts(state: Hashable, untraced: Sequence[str]) -> Mapping[str, Hashable]:
    """Return the parts of a state by name; those of a plain tuple are numbered from 1."""
    if not isinstance(state, tuple):
        return {"": state}
    names = getattr(state, "_fields", range(1, len(state) + 1))
    named = zip(map(str, names), state, strict=True)
    return {name.replace("_", " "): part for name, part in named if name not in untraced}


def _draw_counters(axes: Any, numbers: Mapping[str, Sequence[int]]) -> None:
    """Draw one line each; the axis names a single counter, the legend names several."""
    from matplotlib.ticker import MaxNLocator

    for (name, values), style in zip(
        numbers.items(), line_styles(list(numbers)).values(), strict=True
    ):
        alone = len(numbers) == 1
        look = {"color": ORANGE} if alone else {"label": f"machine: {name}"} | style
        look |= {"markersize": 3, "markevery": max(1, len(values) // LONGEST_WRITTEN)}
        axes.step(np.arange(1, len(values) + 1), values, where="mid", **look)
        if alone and name:
            axes.set_ylabel(f"language's machine:\n{name}")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _draw_rows(axes: Any, numbers: Mapping[str, Sequence[int]]) -> None:
    """Draw one row of cells each, darker for larger numbers, with the number in each cell."""
    cells = np.array(list(numbers.values()))
    height, length = cells.shape
    look = {"cmap": "Oranges", "aspect": "auto", "vmin": 0, "vmax": 2 * max(1, cells.max())}
    axes.imshow(cells, extent=(0.5, length + 0.5, height - 0.5, -0.5), **look)
    axes.set_yticks(range(height), list(map(literal_text, numbers)), fontsize="small")
    if length <= LONGEST_WRITTEN:
        for (row, column), number in np.ndenumerate(cells):
            look = {"ha": "center", "va": "center", "fontsize": 6}
            axes.text(column + 1, row, str(number), **look)


def _draw_phases(axes: Any, labels: Sequence[str]) -> None:
    """Write each phase's name at its start."""
    if not any(labels):
        return
    place = 0.5
    axes.margins(y=0.2)
    for label, group in groupby(labels):
        axes.axvline(place, color="grey", linestyle=":", linewidth=0.8)
        where = axes.get_xaxis_transform()
        axes.text(place, 0.97, f" {label}", transform=where, va="top", fontsize="small")
        place += len(list(group))


def _draw_labels(axes: Any, labels: Sequence[str]) -> None:
    """Draw a line over labels, which are on the axis or, if there are many, beside the line."""
    kinds = {label: height for height, label in enumerate(sorted(set(labels)))}
    heights = [kinds[label] for label in labels]
    axes.step(np.arange(1, len(labels) + 1), heights, ".-", where="mid", color=ORANGE)
    axes.margins(y=0.2)
    if len(kinds) <= _MOST_LABELS:
        axes.set_yticks(list(kinds.values()), list(map(literal_text, kinds)), fontsize="small")
    elif len(labels) <= LONGEST_WRITTEN:
        axes.set_yticks([])
        for place, (height, label) in enumerate(zip(heights, labels, strict=True), 1):
            look = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 5}
            axes.text(place, height, f" {literal_text(label)}", **look)
        axes.margins(y=0.4)


def _draw_stacks(axes: Any, stacks: Sequence[Stack]) -> None:
    """Draw one column of cells each; colours or symbols show the cells' contents."""
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import MaxNLocator

    symbols = sorted({symbol for stack in stacks for symbol in stack})
    number = {symbol: place for place, symbol in enumerate(symbols)}
    cells = np.full((max(1, *map(len, stacks)), len(stacks)), np.nan)
    for place, stack in enumerate(stacks):
        cells[: len(stack), place] = [number[symbol] for symbol in stack]
    few = len(symbols) <= _MOST_COLOURS
    colours = list(COLOURS[: len(symbols)]) if few else ["lightgrey"] * len(symbols)
    deepest, last = np.array(cells.shape) + 0.5
    look = {"cmap": ListedColormap(colours), "vmin": -0.5, "vmax": len(symbols) - 0.5}
    look |= {"interpolation": "nearest", "aspect": "auto", "origin": "lower"}
    axes.imshow(cells, extent=(0.5, last, 0.5, deepest), **look)
    axes.set_ylabel("symbols that the\nmachine keeps")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if few:
        for symbol, colour in zip(symbols, colours, strict=True):
            axes.fill_between([], [], color=colour, label=literal_text(f"kept: {symbol}"))
    elif len(stacks) <= LONGEST_WRITTEN:
        for place, stack in enumerate(stacks, 1):
            for height, symbol in enumerate(stack, 1):
                look = {"ha": "center", "va": "center", "fontsize": 5, "clip_on": True}
                axes.text(place, height, literal_text(symbol), **look)
