"""Figures of language models: perplexity by position in the context."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastweights.evaluation import (
    draw_line,
    line_styles,
    literal_text,
    new_figure,
    with_legend,
)

_WIDE = 4  # ratio to the lowest perplexity from which a logarithmic axis has enough ticks
Bucket = tuple[int, int, float]  # first and last position, mean loss in nats


def position_figure(curves: Mapping[str, Sequence[Bucket]], span: int, title: str) -> Any:
    """Return a figure of next-token perplexity over the tokens read, one line per name.

    Positions are in buckets of doubling size; `span` marks the reach of gradients in training.
    """
    from matplotlib.ticker import NullFormatter

    figure = new_figure(4.5)
    axes = figure.add_subplot()
    axes.set_title(literal_text(textwrap.fill(title, 80)))
    axes.set(xlabel="tokens read from a fresh state", ylabel="perplexity of the next token")
    styles = line_styles(list(curves))
    for name, buckets in curves.items():
        middle = np.array([np.sqrt(first * last) for first, last, _ in buckets])
        draw_line(axes, (middle, np.exp([loss for _, _, loss in buckets])), styles[name], name)
    axes.axvline(span, color="grey", linestyle=":", label=f"span of training: {span} tokens")
    axes.set_xscale("log", base=2)
    losses = [loss for buckets in curves.values() for *_, loss in buckets]
    is_wide = max(losses) - min(losses) > np.log(_WIDE)
    if is_wide:
        axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis) if is_wide else (axes.xaxis,):
        axis.set_major_formatter("{x:,.4g}")
        axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    return with_legend(figure)
