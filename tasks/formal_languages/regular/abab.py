"""(abab)*: whether the number of symbols read so far is a multiple of four.

    a b a b a b a b
    0 0 0 1 0 0 0 1

Source: Irie et al. 2023, section 4.1; Bhattamishra et al. 2020.
"""

from collections.abc import Iterable
from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language


class ABAB(Language):
    """The state is the length, modulo 4."""

    name: ClassVar[str] = "abab"
    title: ClassVar[str] = "(abab)*"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    one_a_size: ClassVar[bool] = True
    multiple: ClassVar[int] = 4

    def step(self, state: int, symbol: str) -> tuple[int, str]:
        if symbol != "ab"[state % 2]:
            raise ValueError("a and b alternate")
        state = (state + 1) % 4
        return state, "0" if state else "1"

    def draw(self, random: Random, size: int) -> Iterable[str]:
        return "abab" * (size // 4)
