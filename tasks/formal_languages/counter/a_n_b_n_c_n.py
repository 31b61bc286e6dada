"""a^n b^n c^n: the next symbol, where it is determined.

    a a a b b b c c c
    N N N b b c c c S

N: not determined; S: the string ends. The size is n. Context-sensitive; two counters suffice.
Source: Irie et al. 2023, section 4.1; Gers & Schmidhuber 2001.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, NamedTuple

from fastweights.tasks.formal_languages.language import Language


class Counters(NamedTuple):
    """The numbers of b and of c still to come, and whether a c was read."""

    b_to_come: int = 0
    c_to_come: int = 0
    c_read: bool = False


@dataclass(frozen=True, kw_only=True)
class ANBNCN(Language):
    """The state is `Counters`."""

    sizes: tuple[int, int] = (1, 50)

    name: ClassVar[str] = "a_n_b_n_c_n"
    title: ClassVar[str] = "a^n b^n c^n"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    answers: ClassVar[tuple[str, ...]] = ("N", "b", "c", "S")
    one_a_size: ClassVar[bool] = True
    start: ClassVar[Counters] = Counters()
    untraced: ClassVar[tuple[str, ...]] = ("c_read",)

    def step(self, state: Counters, symbol: str) -> tuple[Counters, str]:
        b, c, c_read = state
        can_follow = {"a": b == c and not c_read, "b": b > 0, "c": b == 0 and c > 0}
        if not can_follow[symbol]:
            raise ValueError("symbols out of order, or more of one than of another")
        if symbol == "a":
            return Counters(b + 1, c + 1), "N"
        if symbol == "b":
            return Counters(b - 1, c), "b" if b > 1 else "c"
        return Counters(0, c - 1, True), "c" if c > 1 else "S"

    def draw(self, random: Random, size: int) -> Iterable[str]:
        return "a" * size + "b" * size + "c" * size
