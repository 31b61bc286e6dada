"""Dyck-1: whether a bracket is open.

    ( ( ) ) ( )
    1 1 1 0 1 0

Source: Irie et al. 2023, section 4.2; Bhattamishra et al. 2020.
"""

from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.counter.brackets import nested
from fastweights.tasks.formal_languages.language import Language


class Dyck1(Language):
    """The state is the depth."""

    name: ClassVar[str] = "dyck_1"
    title: ClassVar[str] = "Dyck-1"
    alphabet: ClassVar[tuple[str, ...]] = ("(", ")")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    multiple: ClassVar[int] = 2

    def step(self, state: int, symbol: str) -> tuple[int, str]:
        state += 1 if symbol == "(" else -1
        if state < 0:
            raise ValueError("no bracket is open")
        return state, "1" if state else "0"

    def string(self, random: Random, low: int, high: int) -> list[str]:
        return list(nested(random, low, high))
