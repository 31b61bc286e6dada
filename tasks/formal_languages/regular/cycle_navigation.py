"""Cycle navigation: the place, on a cycle of five, where a walk ends.

    + + 0 - + ?
    _ _ _ _ _ 2

Source: Delétang et al. 2023, section 4.
"""

from typing import ClassVar

from fastweights.tasks.formal_languages.language import ASK, Language

MOVES = {"0": 0, "+": 1, "-": -1}
PLACES = 5


class CycleNavigation(Language):
    """The state is the place."""

    name: ClassVar[str] = "cycle_navigation"
    title: ClassVar[str] = "cycle navigation"
    alphabet: ClassVar[tuple[str, ...]] = tuple(MOVES)
    answers: ClassVar[tuple[str, ...]] = tuple(map(str, range(PLACES)))
    asks: ClassVar[bool] = True

    def step(self, state: int, symbol: str) -> tuple[int, str | None]:
        if symbol == ASK:
            return state, str(state)
        return (state + MOVES[symbol]) % PLACES, None
