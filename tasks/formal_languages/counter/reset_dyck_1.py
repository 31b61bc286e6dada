"""Reset Dyck-1: whether a bracket opened since the reset, `1`, is still open.

    ( ( ) 1 ( )
    1 1 1 0 1 0

A string is a prefix of a Dyck-1 string, one reset, and a Dyck-1 string. As in the published
generator, the largest size bounds each Dyck-1 string, so the whole is up to twice as long. The
smallest size bounds the whole or, for a single size or a largest size above 400, each Dyck-1
string.
Source: Irie et al. 2023, section 4.2; Bhattamishra et al. 2020.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.counter.brackets import (
    grammar_serves,
    grammar_string,
    nested,
)
from fastweights.tasks.formal_languages.language import Language
from fastweights.tasks.task import Machine

RESET = "1"
CHANGES = {"(": 1, ")": -1, RESET: 0}


class ResetDyck1(Language):
    """The state is the depth since the reset."""

    name: ClassVar[str] = "reset_dyck_1"
    title: ClassVar[str] = "reset Dyck-1"
    alphabet: ClassVar[tuple[str, ...]] = tuple(CHANGES)
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    multiple: ClassVar[int] = 2

    def step(self, state: int, symbol: str) -> tuple[int, str]:
        state = 0 if symbol == RESET else state + CHANGES[symbol]
        if state < 0:
            raise ValueError("no bracket is open")
        return state, "1" if state else "0"

    def string(self, random: Random, low: int, high: int) -> list[str]:
        if not grammar_serves(low, high):
            whole, after = (nested(random, low, high) for _ in range(2))
            return [*whole[: random.randint(0, len(whole))], RESET, *after]
        while True:
            whole, after = (grammar_string(random, high) for _ in range(2))
            symbols = [*whole[: random.randint(0, len(whole))], RESET, *after]
            if len(symbols) >= low:
                return symbols

    def rivals(self) -> Mapping[str, Machine]:
        return {"a counter that never resets": never_reset}


def never_reset(symbols: Sequence[str]) -> list[str | None]:
    """Return the answers of a counter that ignores the reset, except to answer 0 at it."""
    depth, answers = 0, []
    for symbol in symbols:
        depth += CHANGES[symbol]
        answers.append("1" if depth and symbol != RESET else "0")
    return answers
