"""Output of the estimates of `benchmarks/scaling.py`: a table, a figure and JSON."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.scaling_model import ASSUMPTIONS, Estimate, Layout, Parts, estimate, sweep
from fastweights.evaluation import draw_line, line_styles, new_figure, save_figure, with_legend

TITLE = "Estimate, not a measurement: agent steps/s"


def table(rows: list[tuple[Layout, Estimate]]) -> Table:
    """Return a table with the estimate and the limits of each layout."""
    shown = Table(title=TITLE)
    head = ("environments", "act on", "learn on", *rows[0][1].limits, "estimate", "saturated")
    for name in (*head, "cores needed", "updates a rollout"):
        left = name in ("act on", "saturated")
        shown.add_column(name, justify="left" if left else "right", no_wrap=True)
    for layout, found in rows:
        shown.add_row(
            *(f"{layout.environments:,}", *_machines(layout)),
            *(_rate(limit) for limit in found.limits.values()),
            *(_rate(found.rate), found.saturated),
            "" if found.cores_needed is None else f"{found.cores_needed:,}",
            f"{found.updates_a_rollout:,.2g}",
        )
    return shown


def _machines(layout: Layout) -> tuple[str, str]:
    gpus = f" + {layout.gpus} GPU" if layout.gpus else ""
    learn = f"{layout.learners} × {layout.learner_gpus} GPU" if layout.learners else "same machines"
    return f"{layout.machines} × {layout.cores} cores{gpus}", learn


def _rate(value: float) -> str:
    return "" if math.isinf(value) else f"{value:,.0f}"


def draw(parts: Parts, layouts: list[Layout], path: Path) -> None:
    """Plot agent steps/s against the number of environments, one line per set of machines."""
    figure = new_figure(5, 9)
    axes = figure.add_subplot()
    numbers = np.array([round(48 * (100_000 / 48) ** (i / 60)) for i in range(61)])
    alike = {", learn on ".join(_machines(layout)): layout for layout in layouts}
    styles = line_styles(list(alike))
    for label, layout in alike.items():
        rates = np.array(sweep(parts, layout, numbers.tolist()))
        draw_line(axes, (numbers, rates), styles[label], label)
    places = [(layout.environments, estimate(parts, layout).rate) for layout in layouts]
    axes.plot(*zip(*places, strict=True), "kx", label="a row of the table")
    axes.set(xscale="log", yscale="log", title=TITLE)
    axes.set(xlabel="environments", ylabel="agent steps/s (× 4 emulator frames)")
    axes.grid(alpha=0.3)
    save_figure(with_legend(figure), path)


def to_json(parts: Parts, rows: list[tuple[Layout, Estimate]]) -> dict[str, Any]:
    """Return everything that is printed; the limit of an unused part is null."""
    found = [asdict(layout) | one._asdict() for layout, one in rows]
    for row in found:
        row["limits"] = {k: None if math.isinf(v) else v for k, v in row["limits"].items()}
    assumptions = list(ASSUMPTIONS)
    return {"what": TITLE, "assumptions": assumptions, "parts": asdict(parts), "rows": found}
