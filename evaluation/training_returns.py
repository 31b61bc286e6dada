"""Selection of a run's training returns for a curve: one unit, and enough of them.

A game has a return only when it ends. The first games to end are short, and short games are mostly
bad ones, so their mean is biased. Means start once as many games have ended as there are
environments.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

_FEWEST = 10  # minimum number of games or lives, for any number of environments
_FEWEST_POINTS = 2  # of a curve; axes around a single point would be arbitrary
_UNBIASED = 5  # games per environment; with more, games in progress matter little

Logs = Mapping[str, list[Any]]


class Unit(NamedTuple):
    """The unit of a return: a full game or a life."""

    name: str
    plural: str
    recent: str  # column of the logs: mean of the last 100
    count: str  # column of the logs: number ended
    tested: str  # prefix of the names in an evaluation's summary


class Shortfall(NamedTuple):
    """A measurement that is missing in a short run, in words."""

    happened: str
    consequence: str  # complete sentences

    def __str__(self) -> str:
        return f"{self.happened}. {self.consequence}"


FULL_GAME = Unit("full game", "full games", "recent_full_game_return", "games", "full_game")
LIFE = Unit("life", "lives", "recent_life_return", "lives", "life")


def measured_unit(logs: Logs, num_envs: int) -> Unit | None:
    """Return full games if enough have ended, else lives, else None (no curve to draw).

    In games with one life, a life is the game, so there are no lives to fall back on.
    """
    if len(recent_means(logs, FULL_GAME, num_envs)) >= _FEWEST_POINTS:
        return FULL_GAME
    has_lives = count_ended(logs, LIFE) > count_ended(logs, FULL_GAME)
    if has_lives and len(recent_means(logs, LIFE, num_envs)) >= _FEWEST_POINTS:
        return LIFE
    return None


def recent_means(logs: Logs, unit: Unit, num_envs: int) -> list[tuple[int, float]]:
    """Return (agent steps, mean return of the last 100), starting once enough have ended."""
    steps, values = logs.get("step", []), logs.get(unit.recent, [])
    counts = logs.get(unit.count) or [0] * len(steps)
    rows = zip(steps, values, counts, strict=False)
    return [
        (step, value)
        for step, value, count in rows
        if all(isinstance(one, int | float) for one in (step, value, count))
        and count >= fewest(num_envs)
    ]


def count_ended(logs: Logs, unit: Unit) -> int:
    """Return the number of games or lives (`unit`) that have ended since the run began."""
    return next((n for n in reversed(logs.get(unit.count, [])) if isinstance(n, int)), 0)


def fewest(num_envs: int) -> int:
    """Return the minimum number of games or lives for drawing a mean."""
    return max(_FEWEST, num_envs)


def shortfall(logs: Logs, num_envs: int, drawn: Unit | None = None) -> Shortfall | None:
    """Return what a run could not measure; None if many games have ended.

    `drawn`: the figure's unit, if other runs in it determine the unit (default: `measured_unit`).
    """
    games, unit = count_ended(logs, FULL_GAME), measured_unit(logs, num_envs)
    if games >= _UNBIASED * fewest(num_envs):
        return None
    steps = next(iter(reversed(logs.get("step", []))), 0)
    lives = count_ended(logs, LIFE)
    also = f" and {_counted(lives, LIFE)}" if lives > games else ""
    happened = f"{_counted(games, FULL_GAME)}{also} ended in {steps:,} agent steps"
    if unit is FULL_GAME:
        return Shortfall(
            happened,
            "Games in progress have no return yet, so the curve is biased towards short games. "
            "Longer training removes this bias.",
        )
    missing = (
        f"A curve begins at {fewest(num_envs)} full games, because the first games to end are the "
        "short ones."
    )
    if unit is None:
        return Shortfall(happened, f"{missing} Train longer for a learning curve.")
    if drawn in (None, LIFE):
        return Shortfall(happened, f"{missing} The curve shows per-life returns.")
    return Shortfall(happened, f"{missing} Per-life returns are not drawn beside full games.")


def _counted(count: int, unit: Unit) -> str:
    return f"{count:,} {unit.name if count == 1 else unit.plural}" if count else f"No {unit.name}"
