"""a^n b^n c^n: the next symbol, where it is determined.

    a a a b b b c c c
    N N N b b c c c S

N: not determined; S: the string ends. The size is n. Context-sensitive; two counters suffice.
Source: Irie et al. 2023, section 4.1; Gers & Schmidhuber 2001.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language

Counters = tuple[int, int]  # number of b and of c to come


@dataclass(frozen=True, kw_only=True)
class ANBNCN(Language):
    """The state is the number of b and of c to come."""

    sizes: tuple[int, int] = (1, 50)

    name: ClassVar[str] = "a_n_b_n_c_n"
    title: ClassVar[str] = "a^n b^n c^n"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    answers: ClassVar[tuple[str, ...]] = ("N", "b", "c", "S")
    one_a_size: ClassVar[bool] = True
    start: ClassVar[Counters] = (0, 0)

    def step(self, state: Counters, symbol: str) -> tuple[Counters, str]:
        b, c = state
        if symbol == "a":
            return (b + 1, c + 1), "N"
        if symbol == "b":
            return (b - 1, c), "b" if b > 1 else "c"
        return (b, c - 1), "c" if c > 1 else "S"

    def draw(self, random: Random, size: int) -> Iterable[str]:
        return "a" * size + "b" * size + "c" * size

    def level(self, state: Counters) -> float:
        return float(sum(state))
