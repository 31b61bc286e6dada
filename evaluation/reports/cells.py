"""How a report writes numbers, and where a run comes from."""

from typing import Any, TypeVar

import numpy as np

from fastweights.evaluation.reports.runs import Run
from fastweights.evaluation.statistics import Estimate

INTERVALS = "95 % stratified bootstrap intervals (-: no game has two seeds)"

Part = TypeVar("Part", dict, list, str)


def interval(found: Estimate) -> str:
    known = np.isfinite(found.low)
    return f"{found.value:.3f} " + (f"({found.low:.3f} to {found.high:.3f})" if known else "(-)")


def signed_interval(found: Estimate, unit: str = "") -> str:
    """A difference: `+5.2 (-1.0 to +11.4)`, with as many digits as it takes."""
    digits = 0 if unit or abs(found.value) >= 1000 else 1 if abs(found.value) >= 10 else 2
    value, low, high = (f"{float(one):+,.{digits}f}{unit}" for one in found)
    return f"{value} ({low} to {high})" if np.isfinite(found.low) else f"{value} (-)"


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.2f}"


def count(how_many: int, what: str) -> str:
    return f"{how_many} {what}" if how_many == 1 else f"{how_many} {what}s"


def revision(run: Run) -> str:
    git = _part(run.meta, "git", dict)
    return (_part(git, "commit", str) or "-")[:9] + (" (changed)" if git.get("is_dirty") else "")


def machine(run: Run) -> str:
    about = _part(run.meta, "machine", dict)
    gpus = _part(about, "gpus", list)
    return ", ".join([f"{about.get('cores', '?')} cores", *map(str, gpus)])


def _part(whole: dict[str, Any], name: str, kind: type[Part]) -> Part:
    """What is not of its kind, in a file that somebody else wrote, is unknown."""
    found = whole.get(name)
    return found if isinstance(found, kind) else kind()
