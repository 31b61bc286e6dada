"""Parity: whether the number of ones read so far is even.

    0 1 0 0 1 1 1
    T F F F T F T

Strings have an even number of ones. Their lengths are nearly geometric, truncated to their range;
before truncation, the mean is the middle of the range. The language is not star-free.
Source: Irie et al. 2023, section 4.1; sampler: Bhattamishra et al. 2020, published code.
"""

from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language


class Parity(Language):
    """The state is the number of ones, modulo 2."""

    name: ClassVar[str] = "parity"
    title: ClassVar[str] = "parity"
    alphabet: ClassVar[tuple[str, ...]] = ("0", "1")
    answers: ClassVar[tuple[str, ...]] = ("F", "T")

    def step(self, state: int, symbol: str) -> tuple[int, str]:
        state ^= symbol == "1"
        return state, "F" if state else "T"

    def string(self, random: Random, low: int, high: int) -> list[str]:
        mean = (low + high) // 2
        while True:
            symbols: list[str] = []
            while len(symbols) < high and random.random() >= 1 / (1 + mean):
                symbols.append(random.choice("01"))
            if symbols.count("1") % 2:
                symbols.append("1")
            if low <= len(symbols) <= high:
                return symbols
