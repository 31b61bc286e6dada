"""Modular arithmetic of every prefix: the value so far of a sum of products, modulo 5.

    1 + 2 * 4 - 3
    1 _ 3 _ 4 _ 1

Source: `modular_arithmetic.py`, with an answer at every digit.
"""

from collections.abc import Iterable
from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language, step_and_ask
from fastweights.tasks.formal_languages.regular.modular_arithmetic import (
    DIGITS,
    ModularArithmetic,
    Sum,
)

ASKED = ModularArithmetic()


class ModularArithmeticPrefixes(Language):
    """The state is a `Sum`; sizes (lengths) are odd."""

    name: ClassVar[str] = "modular_arithmetic_prefixes"
    title: ClassVar[str] = "modular arithmetic, prefixes"
    alphabet: ClassVar[tuple[str, ...]] = ModularArithmetic.alphabet
    answers: ClassVar[tuple[str, ...]] = ModularArithmetic.answers
    start: ClassVar[Sum] = ModularArithmetic.start
    untraced: ClassVar[tuple[str, ...]] = ModularArithmetic.untraced

    def step(self, state: Sum, symbol: str) -> tuple[Sum, str | None]:
        return step_and_ask(ASKED, state, symbol, asked=symbol in DIGITS)

    def has(self, size: int) -> bool:
        return ASKED.has(size)

    def draw(self, random: Random, size: int) -> Iterable[str]:
        return ASKED.draw(random, size)
