"""How estimates of `benchmarks/scaling.py` are shown: as a table, a picture and JSON."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.scaling_model import ASSUMPTIONS, Estimate, Layout, Parts, estimate, sweep
from fastweights.evaluation.palette import COLOURS
from fastweights.host.atomic_files import replacing

TITLE = "Estimate, not a measurement: agent steps/s"


def table(rows: list[tuple[Layout, Estimate]]) -> Table:
    """What each layout comes to, and the limits of its parts; updates are those a rollout."""
    shown = Table(title=TITLE)
    head = ("games", "play on", "learn on", *rows[0][1].limits, "estimate", "saturated")
    for name in (*head, "cores needed", "updates"):
        left = name in ("play on", "saturated")
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
    learn = f"{layout.learners} × {layout.learner_gpus} GPU" if layout.learners else "the same"
    return f"{layout.machines} × {layout.cores} cores{gpus}", learn


def _rate(value: float) -> str:
    return "" if math.isinf(value) else f"{value:,.0f}"


def draw(parts: Parts, layouts: list[Layout], path: Path) -> None:
    """Agent steps/s over the number of environments, one line for each set of machines."""
    figure = Figure(figsize=(9, 5.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    numbers = [round(48 * (100_000 / 48) ** (i / 60)) for i in range(61)]
    alike = {_machines(layout): layout for layout in layouts}
    for i, (name, layout) in enumerate(alike.items()):
        label, dashes = ", learn on ".join(name), "--" if i >= len(COLOURS) else "-"
        rates = sweep(parts, layout, numbers)
        axes.plot(numbers, rates, dashes, color=COLOURS[i % len(COLOURS)], label=label)
    for layout in layouts:
        axes.plot(layout.environments, estimate(parts, layout).rate, "o", color="black", ms=4)
    axes.set(xscale="log", yscale="log", title=TITLE)
    axes.set(xlabel="environments", ylabel="agent steps/s (× 4 emulator frames)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")
    with replacing(path) as partial:
        figure.savefig(partial, format="png")


def to_json(parts: Parts, rows: list[tuple[Layout, Estimate]]) -> dict[str, Any]:
    """Everything printed; a limit that does not apply is null."""
    found = [asdict(layout) | one._asdict() for layout, one in rows]
    for row in found:
        row["limits"] = {k: None if math.isinf(v) else v for k, v in row["limits"].items()}
    assumptions = list(ASSUMPTIONS)
    return {"what": TITLE, "assumptions": assumptions, "parts": asdict(parts), "rows": found}
