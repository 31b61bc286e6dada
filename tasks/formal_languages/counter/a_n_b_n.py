"""a^n b^n: the next symbol, where it is determined.

    a a a b b b
    N N N b b S

N: not determined; S: the string ends. The size is n.
Source: Irie et al. 2023, section 4.1; Gers & Schmidhuber 2001.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language


@dataclass(frozen=True, kw_only=True)
class ANBN(Language):
    """The state is the number of b to come, and whether a b was read."""

    sizes: tuple[int, int] = (1, 50)

    name: ClassVar[str] = "a_n_b_n"
    title: ClassVar[str] = "a^n b^n"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b")
    answers: ClassVar[tuple[str, ...]] = ("N", "b", "S")
    one_a_size: ClassVar[bool] = True
    start: ClassVar[tuple[int, bool]] = (0, False)

    def step(self, state: tuple[int, bool], symbol: str) -> tuple[tuple[int, bool], str]:
        if symbol == "a":
            return (state[0] + 1, False), "N"
        left = state[0] - 1
        return (left, True), "b" if left else "S"

    def draw(self, random: Random, size: int) -> Iterable[str]:
        return "a" * size + "b" * size

    def level(self, state: tuple[int, bool]) -> float:
        return float(state[0])
