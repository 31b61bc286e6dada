"""What the figures of a report are drawn from, and what can be told apart in them."""

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np

from launch.reports.curves import Curve, band, hours, numbers
from launch.reports.figures import improvements, line_styles
from launch.reports.runs import Run
from tests.launch.report_pages import reported, short_run, words_of


def run_with(**columns) -> Run:
    return Run("run", Path("run"), {"args": {}}, columns, {}, (), 4)


def test_what_is_no_number_is_a_gap():
    run = run_with(step=[1, 2, 3, 4], loss=[0.5, None, "x", 10**400])
    np.testing.assert_array_equal(numbers(run, "loss"), [0.5, np.nan, np.nan, np.nan])


def test_hours_leave_out_pauses():
    times = [0.0, 10.0, 20.0, 30.0, 9030.0, 9040.0]  # stopped, and resumed much later
    run = run_with(step=list(range(6)), _time=times)
    np.testing.assert_allclose(hours(run) * 3600, [0, 10, 20, 30, 40, 50])
    slow = run_with(step=[1, 2, 3], _time=[0.0, 3600.0, 7200.0])  # slow is no pause
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


def test_lines_differ_in_more_than_colour():
    styles = line_styles([str(index) for index in range(28)])
    looks = {tuple(style.values()) for style in styles.values()}
    assert len(looks) == 28
    in_grey = [(s["linestyle"], s["marker"]) for s in styles.values()]
    assert len(set(in_grey[:8])) == 8


def test_what_run_folders_are_called_is_drawn_as_it_is(tmp_path):
    plain = [r"a$\foo$b", r"a$\frac$", r"a\$b$", "_a"]
    runs = [short_run(tmp_path, name) for name in (*plain, "a\x01b", os.fsdecode(b"c\xffd"))]
    for run in runs:
        (run / "clips").mkdir()
        (run / "clips" / "clip.mp4").write_bytes(b"")
    page = reported(tmp_path / "report", *runs)
    drawn = words_of((tmp_path / "report/report_figures/throughput.svg").read_bytes())
    for shown in (*plain, "a?b", "c?d"):
        assert any(row[:1] == [shown] for row in page.rows)
        assert shown in drawn
    links = [os.fsdecode(unquote_to_bytes(link)) for link in page.links if "/clips/" in link]
    assert links == [f"../{run.name}/clips/clip.mp4" for run in runs]


def test_every_series_of_bars_looks_different():
    series = {f"_series ${number}$": {"a$b$": float(number)} for number in range(15)}
    drawing = improvements(series, "rdn", "lstm")
    assert {*series, "a$b$"} <= set(words_of(drawing))
    fills = set(re.findall(r"fill: (url\(#\w+\)|#\w+)", drawing.decode()))
    assert len(fills) == 15  # white, and plain black is not written
