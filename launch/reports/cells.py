"""How a report writes numbers, and where a run comes from."""

from typing import Any, TypeVar

from launch.reports.runs import Run
from launch.reports.scores import Spread
from launch.score_statistics import Estimate

Part = TypeVar("Part", dict, list, str)


def spread(found: Spread) -> str:
    digits = 1 if max(abs(found.mean), found.std) >= 10 else 2
    return f"{found.mean:,.{digits}f} ± {found.std:,.{digits}f}"


def interval(found: Estimate) -> str:
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


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
