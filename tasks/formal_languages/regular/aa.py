"""(aa)*: whether the number of symbols read so far is even.

    a a a a
    0 1 0 1

Source: Irie et al. 2023, section 4.1; Bhattamishra et al. 2020.
"""

from collections.abc import Iterable
from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language


class AA(Language):
    """The state is the length, modulo 2."""

    name: ClassVar[str] = "aa"
    title: ClassVar[str] = "(aa)*"
    alphabet: ClassVar[tuple[str, ...]] = ("a",)
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    one_a_size: ClassVar[bool] = True
    multiple: ClassVar[int] = 2

    def step(self, state: int, symbol: str) -> tuple[int, str]:
        state = 1 - state
        return state, "0" if state else "1"

    def draw(self, random: Random, size: int) -> Iterable[str]:
        return "a" * size
