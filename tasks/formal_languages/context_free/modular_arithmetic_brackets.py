"""Modular arithmetic with brackets: the value of a nested expression, modulo 5.

    ( 2 * ( - 4 + 1 ) ) ?
    _ _ _ _ _ _ _ _ _ _ 4

An expression is a digit, or two expressions joined by +, - or * in brackets; either may have a
minus before it. Brackets around a single digit make up the required length.
Source: Delétang et al. 2023, section 4.
"""

from collections.abc import Iterable
from random import Random
from typing import ClassVar, NamedTuple

from fastweights.tasks.formal_languages.language import ASK, Language
from fastweights.tasks.formal_languages.regular.modular_arithmetic import (
    DIGITS,
    MODULUS,
    OPERATIONS,
)


class Frame(NamedTuple):
    """The part of an expression read so far within one bracket."""

    value: int | None = None  # of the left operand, or of the result
    operation: str | None = None
    minus: bool = False  # before the next operand
    takes_operation: bool = True  # false outside brackets, and after a bracket's operation

    def __str__(self) -> str:
        operand = "_" if self.value is None else self.value
        return f"{operand}{self.operation or ''}{'-' * self.minus}"

    @property
    def is_open(self) -> bool:
        """Whether an operand comes next."""
        return self.value is None or self.operation is not None

    def with_operation(self, symbol: str) -> "Frame":
        """Return the frame after an operation; where an operand is expected, a minus is a sign."""
        if self.is_open and symbol == "-" and not self.minus:
            return self._replace(minus=True)
        if self.is_open or not self.takes_operation:
            raise ValueError("no operation is allowed here")
        return self._replace(operation=symbol, takes_operation=False)

    def with_value(self, value: int) -> "Frame":
        """Return the frame after an operand."""
        if not self.is_open:
            raise ValueError("an operation must separate two values")
        value = -value if self.minus else value
        if self.operation == "*":
            value = self.value * value
        elif self.operation is not None:
            value = self.value + (value if self.operation == "+" else -value)
        return Frame(value % MODULUS, takes_operation=self.takes_operation)


Stack = tuple[Frame, ...]


class ModularArithmeticBrackets(Language):
    """The state is a stack of open brackets; sizes are lengths without the question."""

    name: ClassVar[str] = "modular_arithmetic_brackets"
    title: ClassVar[str] = "modular arithmetic with brackets"
    alphabet: ClassVar[tuple[str, ...]] = (*DIGITS, *OPERATIONS, "(", ")")
    answers: ClassVar[tuple[str, ...]] = DIGITS
    asks: ClassVar[bool] = True
    start: ClassVar[Stack] = (Frame(takes_operation=False),)
    is_stack: ClassVar[bool] = True

    def step(self, state: Stack, symbol: str) -> tuple[Stack, str | None]:
        *below, top = state
        if symbol == "(" and top.is_open:
            return (*state, Frame()), None
        if symbol == ")" and below and not top.is_open:
            return (*below[:-1], below[-1].with_value(top.value)), None
        if symbol == ASK and not below and not top.is_open:
            return state, str(top.value)
        if symbol in ("(", ")", ASK):
            raise ValueError("a bracket or question that is not allowed here")
        changed = top.with_value(int(symbol)) if symbol in DIGITS else top.with_operation(symbol)
        return (*below, changed), None

    def draw(self, random: Random, size: int) -> Iterable[str]:
        """Draw a string of this size, with a stack of symbols and of sizes of expressions."""
        waiting: list[int | str] = [size]
        symbols = []
        while waiting:
            part = waiting.pop()
            if isinstance(part, str):
                symbols.append(part)
            else:
                waiting.extend(reversed(_parts(random, part)))
        return symbols


def _parts(random: Random, size: int) -> list[int | str]:
    """Return an expression of this size: symbols, and sizes of the expressions inside."""
    signed = [*["-"] * (size % 2 == 0), random.choice(DIGITS)]
    if size <= 2:
        return signed
    if size <= 4:
        return ["(", *signed, ")"]
    left = random.randint(1, size - 4)
    return ["(", left, random.choice(OPERATIONS), size - 3 - left, ")"]
