"""Reverse string: the symbols in reverse order.

    a a b ? ? ?
    _ _ _ b a a

Source: Delétang et al. 2023, section 4.
"""

from collections.abc import Sequence
from typing import ClassVar

from fastweights.tasks.formal_languages.language import ASK, Language


class ReverseString(Language):
    """The state is a stack with its top last."""

    name: ClassVar[str] = "reverse_string"
    title: ClassVar[str] = "reverse string"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b")
    answers: ClassVar[tuple[str, ...]] = ("a", "b")
    asks: ClassVar[bool] = True
    start: ClassVar[str] = ""
    is_stack: ClassVar[bool] = True

    def step(self, state: str, symbol: str) -> tuple[str, str | None]:
        return (state[:-1], state[-1]) if symbol == ASK else (state + symbol, None)

    def questions(self, symbols: Sequence[str]) -> int:
        return len(symbols)
