"""Modular arithmetic without brackets: the value of a sum of products, modulo 5.

    1 + 2 * 4 - 3 ?
    _ _ _ _ _ _ _ 1

Source: Delétang et al. 2023, section 4.
"""

from collections.abc import Iterable
from random import Random
from typing import ClassVar, NamedTuple

from fastweights.tasks.formal_languages.language import ASK, Language

MODULUS = 5
DIGITS = tuple(map(str, range(MODULUS)))
OPERATIONS = ("+", "-", "*")


class Sum(NamedTuple):
    """The `total` of finished products, and the last `product`, with its sign."""

    total: int = 0
    product: int = 1
    is_open: bool = True  # whether a digit comes next

    @property
    def value(self) -> int:
        """The value so far, modulo 5."""
        return (self.total + self.product) % MODULUS


class ModularArithmetic(Language):
    """The state is a `Sum`; sizes (lengths without the question) are odd."""

    name: ClassVar[str] = "modular_arithmetic"
    title: ClassVar[str] = "modular arithmetic"
    alphabet: ClassVar[tuple[str, ...]] = (*DIGITS, *OPERATIONS)
    answers: ClassVar[tuple[str, ...]] = DIGITS
    asks: ClassVar[bool] = True
    start: ClassVar[Sum] = Sum()
    untraced: ClassVar[tuple[str, ...]] = ("is_open",)

    def step(self, state: Sum, symbol: str) -> tuple[Sum, str | None]:
        if (symbol in DIGITS) != state.is_open:
            raise ValueError("digits and operations alternate")
        if symbol == ASK:
            return state, str(state.value)
        if symbol in DIGITS:
            return Sum(state.total, state.product * int(symbol) % MODULUS, False), None
        if symbol == "*":
            return state._replace(is_open=True), None
        return Sum(state.value, 1 if symbol == "+" else MODULUS - 1), None

    def has(self, size: int) -> bool:
        return size % 2 == 1

    def draw(self, random: Random, size: int) -> Iterable[str]:
        return [random.choice(OPERATIONS if place % 2 else DIGITS) for place in range(size)]
