"""Curves from logs: x axes in agent steps, emulator frames and hours; seeds on one grid."""

from collections.abc import Callable

import numpy as np

from fastweights.evaluation.learning_curves import Curve
from fastweights.evaluation.reports.runs import LoggedRun
from fastweights.evaluation.training_returns import Unit, fewest

_PAUSE = 60.0  # seconds
_MOST_POINTS = 50  # maximum number of points in a smoothed curve


def agent_steps(run: LoggedRun) -> np.ndarray:
    """Return the agent steps of every row of the logs."""
    return column_numbers(run, "step")


def emulator_frames(run: LoggedRun) -> np.ndarray:
    """Return the emulator frames of every row of the logs."""
    return agent_steps(run) * run.frames_per_step


def hours(run: LoggedRun) -> np.ndarray:
    """Return hours since the first row, without pauses and clock jumps.

    A pause is longer than a minute and more than ten times the usual time between two rows, as when
    a run was stopped and resumed, or test episodes were played.
    """
    seconds = np.diff(column_numbers(run, "_time"))
    if not len(seconds):
        return np.zeros(1)
    if np.isnan(seconds).all():
        return np.full(len(seconds) + 1, np.nan)
    usual = np.nanmedian(seconds)
    left_out = (seconds < 0) | (seconds > max(_PAUSE, 10 * usual))
    seconds = np.where(left_out, usual, seconds)
    return np.concatenate([[0.0], np.cumsum(seconds)]) / 3600


def cpu_minutes(run: LoggedRun) -> np.ndarray:
    """Return CPU minutes of the training processes; NaN from the first row without a time.

    Steps that a resumed run repeated count once.
    """
    return np.cumsum(column_numbers(run, "cpu_seconds")) / 60


AXES: dict[str, Callable[[LoggedRun], np.ndarray]] = {
    "agent steps": agent_steps,
    "emulator frames": emulator_frames,
    "hours": hours,
}


def curve(run: LoggedRun, column: str, x: Callable[[LoggedRun], np.ndarray]) -> Curve:
    """Return the rows in which `column` and `x` are numbers."""
    return _points(x(run), column_numbers(run, column))


def smoothed(points: Curve) -> Curve:
    """Return means over at most 50 segments of equal length, because single updates are noisy."""
    parts = np.array_split(np.arange(len(points.x)), min(_MOST_POINTS, max(1, len(points.x))))
    if not len(points.x):
        return points
    return Curve(*(np.array([axis[part].mean() for part in parts]) for axis in points))


def return_curve(run: LoggedRun, unit: Unit, x: Callable[[LoggedRun], np.ndarray]) -> Curve:
    """Return means of the last 100 of `unit`, starting once enough have ended."""
    enough = column_numbers(run, unit.count) >= fewest(run.num_envs)
    return _points(x(run), np.where(enough, column_numbers(run, unit.recent), np.nan))


def _points(x: np.ndarray, y: np.ndarray) -> Curve:
    there = np.isfinite(x) & np.isfinite(y)
    return Curve(x[there], y[there])


def column_numbers(run: LoggedRun, column: str) -> np.ndarray:
    """Return a column of the logs as float64; NaN where empty, missing or out of range."""
    values = run.logs.get(column) or [None] * len(run.logs["step"])
    return np.array([_number(value) for value in values], float)


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float) else np.nan
    except OverflowError:
        return np.nan
