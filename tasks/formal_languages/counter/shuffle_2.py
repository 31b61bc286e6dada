"""Shuffle-2: which of two kinds of brackets are open, in two interleaved Dyck-1 strings.

    ( [ ) ( ] )
    2 3 1 3 2 0

The answer is 2 if a round bracket is open, plus 1 if a square bracket is. The paper's text swaps
the two; its example and the published data agree with this file.
Source: Irie et al. 2023, appendix C.2; Suzgun et al. 2019.
"""

from dataclasses import dataclass
from random import Random
from typing import ClassVar, NamedTuple

from fastweights.tasks.formal_languages.counter.brackets import nested, uniform
from fastweights.tasks.formal_languages.language import Language

CHANGES = {"(": (1, 0), ")": (-1, 0), "[": (0, 1), "]": (0, -1)}


class Depths(NamedTuple):
    """Open brackets of each kind."""

    round: int = 0
    square: int = 0


@dataclass(frozen=True, kw_only=True)
class Shuffle2(Language):
    """The state is the depth of each kind."""

    legacy: bool = False
    """Draw as in the published generator: brackets of both kinds nest and never cross as in ([)].
    """

    name: ClassVar[str] = "shuffle_2"
    title: ClassVar[str] = "Shuffle-2"
    alphabet: ClassVar[tuple[str, ...]] = tuple(CHANGES)
    answers: ClassVar[tuple[str, ...]] = ("0", "1", "2", "3")
    multiple: ClassVar[int] = 2
    start: ClassVar[Depths] = Depths()

    def step(self, state: Depths, symbol: str) -> tuple[Depths, str]:
        state = Depths(*map(sum, zip(state, CHANGES[symbol], strict=True)))
        if min(state) < 0:
            raise ValueError("no bracket of this kind is open")
        return state, str(2 * (state.round > 0) + (state.square > 0))

    def string(self, random: Random, low: int, high: int) -> list[str]:
        if self.legacy:
            return list(nested(random, low, high, ("()", "[]")))
        length = 2 * random.randint(-(-low // 2), high // 2)
        of_round = 2 * random.randint(0, length // 2)
        kinds = [0] * of_round + [1] * (length - of_round)
        random.shuffle(kinds)
        parts = [iter(uniform(random, size // 2)) for size in (of_round, length - of_round)]
        square = {"(": "[", ")": "]"}
        drawn = ((kind, next(parts[kind])) for kind in kinds)
        return [square[symbol] if kind else symbol for kind, symbol in drawn]
