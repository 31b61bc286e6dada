"""A picture of a trace through a string of a formal language."""

from pathlib import Path

import numpy as np
from rich.console import Console

from fastweights.evaluation.learning_curves import new_figure, save
from fastweights.evaluation.palette import BLUE, COLOURS, ORANGE
from fastweights.experiments.language_trace import Trace, trace, write_csv
from fastweights.experiments.sequence_run import trained
from fastweights.host.errors import user_input

_IN_LEGEND = 9
_SHOWN_SYMBOLS = 80  # more do not fit below an axis


def show_trace(path: Path, command: str, text: str) -> int:
    """Trace the model of the run at `path` through `text`; write trace.csv and trace.png.

    `command`: the command that trains on the language. Prints a line, and returns the exit code.
    Raises `UserError` if there is no such run.
    """
    model, options = trained(path, command)
    with user_input():
        found = trace(model, options, text)
    write_csv(found, path / "trace.csv")
    draw_trace(found, f"{options.core} on {options.task.title}", path / "trace.png")
    Console().print(
        f"{found.component} follows the machine: {100 * found.explained:.1f} % of its variance "
        f"lies between the machine's states\nwrong answers: {len(found.wrong)} of "
        f"{sum(one is not None for one in found.expected)}\n{path / 'trace.png'}\n"
        f"{path / 'trace.csv'}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 0


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
