"""Bucket sort: the symbols in ascending order.

    3 1 4 1 ? ? ? ?
    _ _ _ _ 1 1 3 4

Five counters, one per symbol, suffice.
Source: Delétang et al. 2023, section 4.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from fastweights.tasks.formal_languages.language import ASK, Language


class Buckets(NamedTuple):
    """The remaining number of each symbol."""

    ones: int = 0
    twos: int = 0
    threes: int = 0
    fours: int = 0
    fives: int = 0


class BucketSort(Language):
    """The state is `Buckets`."""

    name: ClassVar[str] = "bucket_sort"
    title: ClassVar[str] = "bucket sort"
    alphabet: ClassVar[tuple[str, ...]] = ("1", "2", "3", "4", "5")
    answers: ClassVar[tuple[str, ...]] = alphabet
    asks: ClassVar[bool] = True
    start: ClassVar[Buckets] = Buckets()

    def step(self, state: Buckets, symbol: str) -> tuple[Buckets, str | None]:
        buckets = list(state)
        if symbol != ASK:
            buckets[self.alphabet.index(symbol)] += 1
            return Buckets(*buckets), None
        least = next(place for place, count in enumerate(buckets) if count)
        buckets[least] -= 1
        return Buckets(*buckets), self.alphabet[least]

    def questions(self, symbols: Sequence[str]) -> int:
        return len(symbols)
