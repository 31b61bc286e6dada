"""Figures of languages and language models: every line has a name, every word fits."""

import numpy as np
import pytest

from fastweights.experiments.formal_languages.pictures import trace_figure
from fastweights.experiments.formal_languages.trace import STATES, Trace
from fastweights.experiments.language_model.pictures import position_figure
from fastweights.experiments.pictures import lengths_figure
from fastweights.tasks import LANGUAGES
from tests.evaluation.drawings import words_in


def traced(length: int, units: int) -> Trace:
    gates = {f"layer 1 forget_gate[{n}]": [0.5] * length for n in range(units)}
    symbols = ["a"] * length
    return Trace(
        language=LANGUAGES["aa"](),
        symbols=symbols,
        states=[place % 2 for place in range(length)],
        expected=symbols,
        answered=["b", *symbols[1:]],
        component="layer 1 recurrent_fast_weights[0, 2, 1]",
        explained=0.9,
        groups=STATES,
        values=[0.0] * length,
        strengths=gates,
    )


@pytest.mark.parametrize("length", [3, 80, 2000])
@pytest.mark.parametrize("units", [0, 3, 40])
def test_a_trace_names_all_that_it_draws(length, units):
    figure = trace_figure(traced(length, units), "an_lstm on a^n b^n")
    words = words_in(figure)
    assert {"a wrong answer", "memory: layer 1 recurrent_fast_weights[0, 2, 1]"} <= set(words)
    assert "90 % of its variance lies between the machine's states" in words
    # Each symbol stands below, and its right answer above.
    assert words.count("a") == (2 * length if length <= 80 else 0)
    named = [text for text in words if text.startswith("layer 1 forget")]
    assert (
        named
        == {
            0: [],
            3: [f"layer 1 forget_gate[{n}]" for n in range(3)],
            40: ["layer 1 forget gate (40 units)"],
        }[units]
    )
    levels = figure.axes[0].get_yticks()
    assert all(float(tick).is_integer() for tick in levels)


def test_lengths_of_training_are_told_from_longer_ones():
    measured = {"bin0": (8, 1.0), "bin1": (60, 0.5), "length": (10_000, 0.0)}
    rows = [
        {"split": split, "length": length, "sequence_accuracy": share}
        for split, (length, share) in measured.items()
    ]
    figure = lengths_figure(rows)
    words = set(words_in(figure))
    assert {"sequences right, percent", "10,000", "Bin0, lengths of training"} <= words
    lines = figure.axes[0].lines
    assert [line.get_ydata()[0] for line in lines] == [100, 50, 0]
    assert len({line.get_marker() for line in lines}) == 3


@pytest.mark.parametrize("worst", [2.1, 6.0])
def test_perplexities_have_ticks_whatever_their_range(worst):
    buckets = [(1, 1, worst), (2, 3, 2.05), (4, 7, 2.0)]
    figure = position_figure({"valid": buckets, "test": buckets}, 64, "rdn, " * 40)
    words = set(words_in(figure))
    assert {"valid", "test", "span of training: 64 tokens"} <= words
    axes = figure.axes[0]
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 3
    assert axes.lines[0].get_linestyle() != axes.lines[1].get_linestyle()
    np.testing.assert_allclose(axes.lines[0].get_ydata()[0], np.exp(worst))
