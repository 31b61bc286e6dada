"""What benchmarks ask of the numbers and names that they are given: before hours of measuring."""

import argparse
import math

from fastweights.envs import resolve
from fastweights.host.errors import UserError, user_input
from fastweights.host.flags import flag


def check_above_zero(options: argparse.Namespace, *names: str) -> None:
    """Raises a `UserError` for an option that is not above 0 and finite; None is none."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{flag(name)} must be above 0 and finite, not {value}")


def check_game(name: str) -> None:
    """Raises a `UserError`, with the nearest known, for a game that is none."""
    with user_input():
        resolve(name)


def last_words(stderr: str) -> str:
    """Of a command that failed: what it said last."""
    return (stderr.strip().splitlines() or ["without a word"])[-1].removeprefix("error: ")
