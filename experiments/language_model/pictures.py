"""Pictures of language models: perplexity by position in the context."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fastweights.evaluation.palette import COLOURS

Bucket = tuple[int, int, float]  # first and last position, mean loss in nats


def draw_by_position(
    curves: Mapping[str, Sequence[Bucket]], span: int, title: str, path: Path
) -> None:
    """Draw the perplexity of the next token over the tokens read, a line for each name.

    Positions are buckets that double; `span` marks the reach of gradients in training.
    """
    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(title=title, xlabel="tokens read from a fresh state")
    axes.set_ylabel("perplexity of the next token")
    for number, (name, buckets) in enumerate(curves.items()):
        middle = [np.sqrt(first * last) for first, last, _ in buckets]
        perplexity = np.exp([loss for _, _, loss in buckets])
        axes.plot(middle, perplexity, ".-", color=COLOURS[number % len(COLOURS)], label=name)
    axes.axvline(span, color="grey", linestyle=":", label=f"span of training: {span}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, format="png")
