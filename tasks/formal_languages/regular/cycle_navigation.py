"""Cycle navigation: the final position of a walk on a cycle of length five.

    + + 0 - + ?
    _ _ _ _ _ 2

Source: Delétang et al. 2023, section 4.
"""

from typing import ClassVar

from fastweights.tasks.formal_languages.language import ASK, Language

MOVES = {"0": 0, "+": 1, "-": -1}
PLACES = 5


class CycleNavigation(Language):
    """The state is the position."""

    name: ClassVar[str] = "cycle_navigation"
    title: ClassVar[str] = "cycle navigation"
    alphabet: ClassVar[tuple[str, ...]] = tuple(MOVES)
    answers: ClassVar[tuple[str, ...]] = tuple(map(str, range(PLACES)))
    asks: ClassVar[bool] = True

    def step(self, state: int, symbol: str) -> tuple[int, str | None]:
        if symbol == ASK:
            return state, str(state)
        return (state + MOVES[symbol]) % PLACES, None
