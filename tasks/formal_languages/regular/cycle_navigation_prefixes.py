"""Cycle navigation at every step: the position on a cycle of length five after each move.

    + + 0 - +
    1 2 2 1 2

This is the word problem of the cyclic group of order five.
Source: `cycle_navigation.py`, with an answer at every position.
"""

from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language, step_and_ask
from fastweights.tasks.formal_languages.regular.cycle_navigation import CycleNavigation

ASKED = CycleNavigation()


class CycleNavigationPrefixes(Language):
    """The state is the position."""

    name: ClassVar[str] = "cycle_navigation_prefixes"
    title: ClassVar[str] = "cycle navigation, prefixes"
    alphabet: ClassVar[tuple[str, ...]] = CycleNavigation.alphabet
    answers: ClassVar[tuple[str, ...]] = CycleNavigation.answers

    def step(self, state: int, symbol: str) -> tuple[int, str | None]:
        return step_and_ask(ASKED, state, symbol)
