"""a^n b^n: the next symbol, where it is determined.

    a a a b b b
    N N N b b S

N: not determined; S: the string ends. The size is n.
Source: Irie et al. 2023, section 4.1; Gers & Schmidhuber 2001.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, NamedTuple

from fastweights.tasks.formal_languages.language import Language


class Counter(NamedTuple):
    """The number of b still to come, and whether a b was read."""

    b_to_come: int = 0
    b_read: bool = False


@dataclass(frozen=True, kw_only=True)
class ANBN(Language):
    """The state is a `Counter`."""

    sizes: tuple[int, int] = (1, 50)

    name: ClassVar[str] = "a_n_b_n"
    title: ClassVar[str] = "a^n b^n"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b")
    answers: ClassVar[tuple[str, ...]] = ("N", "b", "S")
    one_a_size: ClassVar[bool] = True
    start: ClassVar[Counter] = Counter()
    untraced: ClassVar[tuple[str, ...]] = ("b_read",)

    def step(self, state: Counter, symbol: str) -> tuple[Counter, str]:
        if state.b_read if symbol == "a" else not state.b_to_come:
            raise ValueError("an a after a b, or more b than a")
        if symbol == "a":
            return Counter(state.b_to_come + 1), "N"
        left = state.b_to_come - 1
        return Counter(left, True), "b" if left else "S"

    def draw(self, random: Random, size: int) -> Iterable[str]:
        return "a" * size + "b" * size
