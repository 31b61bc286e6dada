"""Ranges of numbers as text, such as "[0, 1)"; a square bracket includes the end."""

import math
from typing import Any

from fastweights.host.flag_names import flag

SHARE, NOT_NEGATIVE, POSITIVE, COUNT = "[0, 1]", "[0, inf)", "(0, inf)", "[1, inf)"
MOST_THREADS = 4096
SEED, BATCH, SECONDS = "[0, 2^31)", "[1, 2^20]", "(0, 1e9]"
THREADS = f"[0, {MOST_THREADS}]"


def check_range(name: str, value: float | None, allowed: str) -> None:
    """Raise a one-line `ValueError` if the option's value is out of range; None is accepted."""
    if value is None:
        return
    if value != value:
        raise ValueError(f"{flag(name)} must be a number, not {value}")
    if abs(value) == math.inf and not allowed.endswith("inf]"):
        raise ValueError(f"{flag(name)} must be finite, not {value}")
    if not _is_in(value, allowed):
        raise ValueError(f"{flag(name)} must {_described(allowed)}, not {value}")


def check_ranges(options: Any, allowed: str, *names: str) -> None:
    """Check several attributes of `options` as `check_range` does."""
    for name in names:
        check_range(name, getattr(options, name), allowed)


def _ends(allowed: str) -> tuple[float, float]:
    least, most = map(_number, allowed[1:-1].split(", "))
    return least, most


def _number(text: str) -> float:
    base, _, exponent = text.partition("^")
    return float(base) ** float(exponent or 1)


def _is_in(value: float, allowed: str) -> bool:
    least, most = _ends(allowed)
    above = value >= least if allowed[0] == "[" else value > least
    return above and (value <= most if allowed[-1] == "]" else value < most)


def _described(allowed: str) -> str:
    least, most = _ends(allowed)
    if math.isfinite(most):
        return f"lie in {allowed}"
    side = "at least" if allowed[0] == "[" else "above"
    return f"be {side} {least:g}" + (" (inf: no limit)" if allowed[-1] == "]" else "")
