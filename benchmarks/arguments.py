"""Options of benchmarks, checked before the measurements, which can take hours."""

import argparse
import math
from pathlib import Path

from benchmarks.json_file import check_folder
from fastweights.envs import resolve
from fastweights.host import UserError, flag, user_input


def check_above_zero(options: argparse.Namespace, *names: str) -> None:
    """Raise a `UserError` for an option that is not above 0 and finite; None is accepted."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{flag(name)} must be above 0 and finite, not {value}")


def check_game(name: str) -> None:
    """Raise a `UserError` with the nearest known name if no such game exists."""
    with user_input():
        resolve(name)


def add_run_options(
    parser: argparse.ArgumentParser, rounds: str, seconds: str, default: float, json: str = "rows"
) -> None:
    """Add the options of benchmarks that perform whole training runs on a game.

    `rounds`, `seconds` and `json` complete the help; `default` is the default of --seconds.
    """
    parser.add_argument("--env", default="Qbert", help="game (default Qbert)")
    parser.add_argument("--rounds", type=int, default=3, help=f"{rounds} (default 3)")
    length = f"{seconds} in seconds (default {default:.0f})"
    parser.add_argument("--seconds", type=float, default=default, help=length)
    parser.add_argument("--json", type=Path, help=f"file for the machine and the {json}")


def check_run_options(options: argparse.Namespace, *above_zero: str) -> None:
    """Raise a `UserError` for an invalid option of `add_run_options` or of `above_zero`."""
    check_above_zero(options, "rounds", "seconds", *above_zero)
    check_game(options.env)
    check_folder(options.json)


def last_words(stderr: str) -> str:
    """Return the last line of a failed command's stderr."""
    return (stderr.strip().splitlines() or ["without a word"])[-1].removeprefix("error: ")
