"""The figures of a report: their data, and how their lines are told apart."""

import os
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest

from fastweights.evaluation.learning_curves import Curve, band, line_styles
from fastweights.evaluation.reports.curves import column_numbers, hours
from fastweights.evaluation.reports.figures import (
    improvements,
    learner,
    learning_curves,
    profiles,
    throughput,
)
from fastweights.evaluation.reports.runs import Group, LoggedRun
from fastweights.evaluation.statistics import Estimate
from fastweights.evaluation.training_returns import FULL_GAME, LIFE
from tests.evaluation.drawings import words_in
from tests.evaluation.report_pages import four_options, reported, short_run, words_of


def run_with(**columns) -> LoggedRun:
    return LoggedRun("run", Path("run"), {"args": {}}, columns, {}, (), 4)


def group_of(*runs: LoggedRun) -> Group:
    return Group("rdn", "rdn", runs)


def test_what_is_no_number_is_a_gap():
    run = run_with(step=[1, 2, 3, 4], loss=[0.5, None, "x", 10**400])
    np.testing.assert_array_equal(column_numbers(run, "loss"), [0.5, np.nan, np.nan, np.nan])


def test_hours_leave_out_pauses():
    times = [0.0, 10.0, 20.0, 30.0, 9030.0, 9040.0]  # stopped, and resumed much later
    run = run_with(step=list(range(6)), _time=times)
    np.testing.assert_allclose(hours(run) * 3600, [0, 10, 20, 30, 40, 50])
    slow = run_with(step=[1, 2, 3], _time=[0.0, 3600.0, 7200.0])  # slow updates are no pause
    np.testing.assert_allclose(hours(slow), [0, 1, 2])


def test_a_band_is_where_all_seeds_are():
    rising = Curve(np.array([0.0, 10.0]), np.array([0.0, 10.0]))
    short = Curve(np.array([2.0, 6.0]), np.array([4.0, 4.0]))
    together = band([rising, short])
    assert (together.x[0], together.x[-1]) == (2.0, 6.0)
    np.testing.assert_allclose(together.mean, (together.x + 4) / 2)
    np.testing.assert_allclose(together.low, np.minimum(together.x, 4))
    np.testing.assert_allclose(together.high, np.maximum(together.x, 4))
    late = Curve(np.array([20.0, 30.0]), np.array([0.0, 0.0]))
    assert band([rising, late]) is None and band([]) is None


def test_the_line_of_a_band_is_the_mean_of_its_seeds():
    x = np.array([0.0, 1.0])
    together = band([Curve(x, np.array([value, value])) for value in (0.0, 1.0, 8.0)])
    np.testing.assert_allclose(together.mean, 3.0)
    np.testing.assert_allclose((together.low[0], together.high[0]), (0.0, 8.0))


def test_lines_differ_in_more_than_colour():
    styles = line_styles([str(index) for index in range(28)])
    looks = {tuple(style.values()) for style in styles.values()}
    assert len(looks) == 28
    in_grey = [(s["linestyle"], s["marker"]) for s in styles.values()]
    assert len(set(in_grey[:8])) == 8


def test_what_run_folders_are_called_is_drawn_as_it_is(tmp_path):
    plain = [r"a$\foo$b", r"a$\frac$", r"a\$b$", "_a"]
    names = (*plain, "a\x01b", os.fsdecode(b"c\xffd"))
    runs = [short_run(tmp_path, name, **four_options(n)) for n, name in enumerate(names, 1)]
    for run in runs:
        (run / "clips").mkdir()
        (run / "clips" / "clip.mp4").write_bytes(b"")
    page = reported(tmp_path / "report", *runs)
    drawn = words_of((tmp_path / "report/report_figures/throughput-0.svg").read_bytes())
    for shown in (*plain, "a?b", "c?d"):
        assert any(row[:1] == [shown] for row in page.rows)
        assert f"rdn ({shown})" in drawn
    links = [os.fsdecode(unquote_to_bytes(link)) for link in page.links if "/clips/" in link]
    assert links == [f"../{run.name}/clips/clip.mp4" for run in runs]


LONG = "delta_rnn, env_options sticky=0.25, core_feature_map elu_sum, learning_rate 0.0006, seed "


def interval(value: float) -> Estimate:
    return Estimate(value, value - 30, value + 300)


@pytest.mark.parametrize("games", [1, 5, 57])
def test_bars_and_their_words_lie_within_a_figure_of_fitting_height(games):
    names = [f"my_module:A$Game${'WithAnUnusuallyLongName' * 2}{n}-v0" for n in range(games)]
    found = {name: interval(20.0 * (n - 3)) for n, name in enumerate(names)}
    figure = improvements(found, "self_referential", "fast_weight_rnn")
    words = words_in(figure)
    assert sum("-v0" in text for text in words) == games and "-60 %" in words
    width, height = figure.get_size_inches()
    assert 992 / width * height <= 1200
    assert height == pytest.approx(1.2 + 0.36 * games) or games > 28


def test_bars_have_their_intervals_and_the_best_is_on_top():
    found = {"a": Estimate(50.0, 20.0, 80.0), "b": Estimate(-10.0, np.nan, np.nan)}
    axes = improvements(found, "rdn", "lstm").axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["b", "a"]
    assert [bar.get_width() for bar in axes.patches] == [-10, 50]
    segments = axes.collections[0].get_segments()
    assert [[20.0, 1.0], [80.0, 1.0]] in [segment.tolist() for segment in segments]


@pytest.mark.parametrize("count", [1, 3, 12])
def test_legends_of_long_names_lie_within_the_canvas(count):
    levels = np.linspace(0, 1, 5)
    names = [f"{LONG}{n}" for n in range(count)]
    found = {name: Estimate(levels, levels - 0.1, levels + 0.1) for name in names}
    figure = profiles(levels, found)
    words = words_in(figure)
    assert sum("delta_rnn" in text for text in words) == count
    assert 992 / figure.get_figwidth() * figure.get_figheight() <= 1200


def test_axes_without_data_are_not_drawn():
    styles = line_styles(["rdn", "run"])
    late = {"step": [1, 9, 17], "games": [0, 40, 41], "lives": [0, 160, 164]}
    late["_time"] = [0.0, 15.0, 30.0]
    counted = {"recent_full_game_return": [None, 2.0, 3.0], "recent_life_return": [None, 0.5, 1.0]}
    untimed = {"_time": [None] * 3, "agent_steps_per_second": [None] * 3}
    group = group_of(run_with(**late, **counted))
    figure = learning_curves([group], FULL_GAME, styles)
    assert len(figure.axes) == 3 and all(axes.lines for axes in figure.axes)
    words = words_in(figure)
    assert "return of a full game, mean of up to 100 recent ones" in words
    assert {"agent steps", "emulator frames", "seconds"} <= set(words)
    without = group_of(run_with(**late | untimed, **counted))
    assert len(learning_curves([without], FULL_GAME, styles).axes) == 2
    few = group_of(run_with(**late | {"games": [0, 31, 32]}, **counted))  # of 32 environments
    assert learning_curves([few], FULL_GAME, styles) is None  # one point is no curve
    (line,) = learning_curves([few], LIFE, styles).axes[0].lines
    assert line.get_ydata().tolist() == [0.5, 1.0]
    lagging = group_of(run_with(**late | untimed, policy_lag=[0.0, 1.0, 0.0]))
    assert len(throughput({"run": lagging}, styles).axes) == 1
    assert throughput({"run": group_of(run_with(step=[1]))}, styles) is None
    # A constant lag of 0 is not drawn, because its axes would have no scale.
    idle = group_of(run_with(**late | untimed, policy_lag=[0.0] * 3))
    assert throughput({"run": idle}, styles) is None


def test_how_far_the_policy_moved_is_drawn_where_it_was_logged():
    logged = {"step": [1, 2, 3], "approx_kl": [0.0, 0.1, 0.2]}
    fits = {"explained_variance": [-700.0, 0.5, 0.9]}
    styles = line_styles(["run"])
    kl, fit = learner({"run": group_of(run_with(**logged, **fits))}, styles).axes
    assert kl.lines[0].get_ydata().tolist() == [0.0, 0.1, 0.2]
    assert fit.lines[0].get_ydata().tolist() == [-1.0, 0.5, 0.9]
    assert len(learner({"run": group_of(run_with(**logged))}, styles).axes) == 1
    assert learner({"run": group_of(run_with(step=[1]))}, styles) is None


@pytest.mark.parametrize("count", [1, 3, 12])
def test_many_runs_are_a_line_a_group_and_noise_is_smoothed(count):
    noisy = np.random.default_rng(1).normal(size=1000).tolist()
    steps = list(range(1000))
    rates = [300.0 + value for value in noisy]
    run = run_with(step=steps, _time=steps, approx_kl=noisy, agent_steps_per_second=rates)
    groups = {f"{LONG}{n}": group_of(run, run, run) for n in range(count)}
    styles = line_styles(list(groups))
    for draw in (learner, throughput):
        figure = draw(groups, styles)
        assert sum("delta_rnn" in text for text in words_in(figure)) == count
        lines = [line for line in figure.axes[0].lines if line.get_linewidth() > 1]
        assert len(lines) == count
        assert all(len(line.get_xdata()) <= 200 for line in lines)
        assert np.std(lines[0].get_ydata()) < 0.4 * np.std(noisy)


def test_where_no_game_ended_the_report_says_so_and_draws_nothing(tmp_path):
    reported(tmp_path / "out", short_run(tmp_path, "short", any_ended=False))
    text = (tmp_path / "out" / "report.md").read_text()
    assert "short: No full game ended in 256 agent steps. A curve begins at 32 full games" in text
    assert not list((tmp_path / "out" / "report_figures").glob("learning-*"))


def test_an_interval_that_ends_a_rounding_below_its_value_is_drawn():
    value = 0.1 + 0.2
    found = {
        "TMaze": Estimate(value, 0.1, np.nextafter(value, 0)),
        "Catch": Estimate(1.0, 1.0, 1.0),
    }
    assert improvements(found, "rdn", "lstm").axes
