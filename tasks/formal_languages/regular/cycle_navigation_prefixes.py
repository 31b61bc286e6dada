"""Cycle navigation at every step: the place, on a cycle of five, after each move of a walk.

    + + 0 - +
    1 2 2 1 2

This is the word problem of the cyclic group of order five.
Source: `cycle_navigation.py`, with an answer at every position.
"""

from typing import ClassVar

from fastweights.tasks.formal_languages.language import OfPrefixes
from fastweights.tasks.formal_languages.regular.cycle_navigation import CycleNavigation


class CycleNavigationPrefixes(OfPrefixes, CycleNavigation):
    """The state is the place."""

    name: ClassVar[str] = "cycle_navigation_prefixes"
    title: ClassVar[str] = "cycle navigation, prefixes"
