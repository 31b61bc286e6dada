"""Checks of benchmarks' options, made before the measurements, which can take hours."""

import argparse
import math

from fastweights.envs import resolve
from fastweights.host.errors import UserError, user_input
from fastweights.host.flags import flag


def check_above_zero(options: argparse.Namespace, *names: str) -> None:
    """Raise a `UserError` for an option that is not above 0 and finite; None passes."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{flag(name)} must be above 0 and finite, not {value}")


def check_game(name: str) -> None:
    """Raise a `UserError` with the nearest known name if no such game exists."""
    with user_input():
        resolve(name)


def last_words(stderr: str) -> str:
    """Return the last line of a failed command's stderr."""
    return (stderr.strip().splitlines() or ["without a word"])[-1].removeprefix("error: ")
