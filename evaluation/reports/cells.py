"""Formatting of numbers, and of a run's origin, in reports."""

from typing import Any, TypeVar

import numpy as np

from fastweights.evaluation.reports.runs import LoggedRun
from fastweights.evaluation.statistics import Estimate
from fastweights.records import resumptions

INTERVALS = "95 % stratified bootstrap intervals (-: some game has only one seed)"

Part = TypeVar("Part", dict, list, str)


def interval(found: Estimate) -> str:
    """Return a value with its interval."""
    known = np.isfinite(found.low)
    return f"{found.value:.3f} " + (f"({found.low:.3f} to {found.high:.3f})" if known else "(-)")


def signed_interval(found: Estimate, unit: str = "") -> str:
    """Return a difference: `+5.2 (-1.0 to +11.4)`, with as many digits as it needs."""
    digits = 0 if unit or abs(found.value) >= 1000 else 1 if abs(found.value) >= 10 else 2
    value, low, high = (f"{float(one):+,.{digits}f}{unit}" for one in found)
    return f"{value} ({low} to {high})" if np.isfinite(found.low) else f"{value} (-)"


def number(value: float | None) -> str:
    """Return a number with as many digits as it needs; `-` for None."""
    if value is None:
        return "-"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.{1 if abs(value) >= 10 else 2}f}"


def count(how_many: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{how_many} {what}" if how_many == 1 else f"{how_many} {what}s"


def revision(run: LoggedRun) -> str:
    """Return the commit of a run; `a, then b` if it was resumed at another one."""
    times = (run.meta, *resumptions(run.meta))
    return ", then ".join(dict.fromkeys(map(_commit, times)))


def _commit(begun: dict[str, Any]) -> str:
    git = _part(begun, "git", dict)
    return (_part(git, "commit", str) or "-")[:9] + (" (changed)" if git.get("is_dirty") else "")


def machine(run: LoggedRun) -> str:
    """Return a run's machine."""
    about = _part(run.meta, "machine", dict)
    gpus = _part(about, "gpus", list)
    return ", ".join([f"{about.get('cores', '?')} cores", *map(str, gpus)])


def _part(whole: dict[str, Any], name: str, kind: type[Part]) -> Part:
    """Return a part of a foreign file; the kind's default if it has another type."""
    found = whole.get(name)
    return found if isinstance(found, kind) else kind()
