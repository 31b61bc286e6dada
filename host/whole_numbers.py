"""Whole numbers as people type them: 1000000, 1_000_000 or 1e6."""

import re
from decimal import Decimal

_DIGITS = re.compile(r"[+-]?\d+(?:_\d+)*")
_WITH_EXPONENT = re.compile(r"[+-]?\d+(?:_\d+)*(?:\.\d+)?[eE]\+?\d{1,3}")
_MOST = 2**63  # checkpoints and torch only hold smaller numbers


def whole_number(text: str) -> int:
    """Return the exact number in `text`: `2.5e6` is 2500000.

    Raises:
        ValueError: anything else, such as `1.5`, or a number beyond 63 bits.
    """
    text = text.strip()
    if _DIGITS.fullmatch(text) or _WITH_EXPONENT.fullmatch(text):
        number = Decimal(text.replace("_", ""))
        if abs(number) >= _MOST:
            raise ValueError(f"must be a whole number below 2^63, not {text[:40]}")
        if number == number.to_integral_value():
            return int(number)
    raise ValueError(f"must be a whole number (1000000, 1_000_000 or 1e6), not {text[:40]!r}")


def divisors_near(total: int, wanted: int) -> str:
    """Return the divisors of `total` next to `wanted`, which is none of them, such as `2 or 4`."""
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    below, above = [n for n in divisors if n < wanted], [n for n in divisors if n > wanted]
    return " or ".join(map(str, (*below[-1:], *above[:1])))


def multiples_near(factor: int, wanted: int) -> str:
    """Return the multiples of `factor` next to `wanted`, which is none, such as `32 or 64`."""
    below = wanted // factor * factor
    return " or ".join(map(str, filter(None, (below, below + factor))))
