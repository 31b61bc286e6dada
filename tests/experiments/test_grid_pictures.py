"""Figures of a grid: every word lies within them, and empty axes are not drawn."""

import warnings
from typing import Any

import numpy as np
import pytest

from fastweights.evaluation.learning_curves import Curve, save_figure
from fastweights.evaluation.published_scores import PublishedScore
from fastweights.experiments.pictures import (
    NOTHING,
    Panel,
    curves_figure,
    rows_figure,
)
from fastweights.experiments.rows import Row
from tests.evaluation.drawings import words_in


def row(labels: dict[str, Any], *values: float, **more) -> Row:
    by_seed = dict(enumerate(values, start=1))
    return Row(labels=labels, seeds=range(1, 4), values=by_seed, **more)


LONG = {"setting": "variables=3 (CodeExecution(variables=2, statements=25))" * 2}


@pytest.mark.parametrize("count", [1, 3, 12])
def test_rows_of_long_names_lie_within_the_picture(count, tmp_path):
    published = PublishedScore(75.0, 1.5)
    named = [LONG | {"core": f"core {i}$"} for i in range(12)]
    rows = [row(one, 60.0, 80.0, published=published) for one in named]
    rows[1:3] = row(named[1], 50.0), row(named[2], failed=[1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Matplotlib warns if labels leave no room
        figure = rows_figure(rows[:count], "accuracy, percent", "a title " * 20)
        words = words_in(figure)
    assert sum("core " in text for text in words) == count
    assert {"0", "100", "accuracy, percent", "paper", "mean of the seeds"} <= set(words)
    assert ("failed" in words) == (count > 2)
    save_figure(rows_figure(rows, "percent", ""), tmp_path / "rows.png")
    assert (tmp_path / "rows.png").read_bytes().startswith(b"\x89PNG")


def test_a_long_setting_above_its_panel_is_not_cut():
    rows = [row(LONG | {"core": core}, 60.0) for core in ("rdn", "lstm")]
    words = words_in(rows_figure(rows, "accuracy, percent", "a title", panel="setting"))
    assert LONG["setting"] in words and {"rdn", "lstm"} <= set(words)


def test_the_papers_rows_do_not_crowd_out_ours():
    labels = {"game": "A", "row": "LSTM", "core": "lstm", "measure": "test"}
    ours, published = row(labels, 60.0), PublishedScore(9.0, 1.0)
    foreign = [row(labels | {"game": "B"}, published=published)] * 20
    figure = rows_figure([ours, *foreign], "return", "a title", panel="game")
    words = words_in(figure)
    assert "return (20 of the table's 21 rows have no run here and are not drawn)" in words
    assert len(figure.axes) == 1 and "B" not in words and "LSTM · test" in words
    assert figure.get_figheight() < 4
    alone = rows_figure(foreign, "return", "a title", panel="game")
    assert "paper" in words_in(alone)


def test_labels_that_are_equal_numbers_both_stay():
    sizes = [row({"layers": "1", "heads": str(heads)}, 60.0) for heads in (1, 2)]
    sizes += [row({"layers": "2", "heads": "2"}, 60.0)]
    assert {"1 · 1", "1 · 2", "2 · 2"} <= set(words_in(rows_figure(sizes, "return", "")))


def test_equal_values_do_not_look_different():
    close = [row({"core": "a"}, 0.9995), row({"core": "b"}, 0.9962)]
    low, high = rows_figure(close, "return", "").axes[0].get_xlim()
    assert high - low > 0.09


def test_where_nothing_was_measured_no_axes_are_drawn():
    figure = rows_figure([row({"core": "rdn"})], "percent", "a title")
    assert figure.axes == [] and words_in(figure) == ["a title No run has measured anything yet."]
    for points in (np.empty(0), np.ones(1)):
        panel = Panel({"rdn": [Curve(points, points)]}, "agent steps", "return", "a game")
        figure = curves_figure([[panel]], "a title")
        assert not any(axes.axison for axes in figure.axes)
        assert {"a title", "a game", NOTHING} <= set(words_in(figure))


@pytest.mark.parametrize("count", [1, 3, 12])
def test_curves_of_many_long_names_lie_within_the_picture(count):
    curve = Curve(np.array([0.0, 500_000.0]), np.arange(2.0))
    names = [f"delta_rnn · {'learning_rate 0.001, ' * 5}{n}" for n in range(count)]
    full = Panel({name: [curve, curve] for name in names}, "agent steps", "return", "a game")
    empty = Panel({name: [] for name in names}, "agent steps", "return", "another")
    figure = curves_figure([[full, full], [empty, empty]], "a title " * 20)
    words = words_in(figure)
    assert sum("delta_rnn" in text for text in words) == count
    assert "400 k" in words and words.count(NOTHING) == 2 and words.count("return") == 1


def test_lengths_that_double_are_evenly_spaced():
    curve = Curve(np.array([64.0, 128.0, 2048.0]), np.arange(3.0))
    figure = curves_figure([[Panel({"lstm": [curve]}, "length", "y", lengths=True)]], "")
    assert figure.axes[0].get_xscale() == "log" and {"64", "2,048"} <= set(words_in(figure))
