"""Even pairs of every prefix: whether the number of pairs ab and ba so far is even.

    a a b b a
    T T F F T

Source: `even_pairs.py`, with an answer at every position, as in parity.
"""

from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language, step_and_ask
from fastweights.tasks.formal_languages.regular.even_pairs import EvenPairs

ASKED = EvenPairs()


class EvenPairsPrefixes(Language):
    """The state is the first and the last symbol."""

    name: ClassVar[str] = "even_pairs_prefixes"
    title: ClassVar[str] = "even pairs, prefixes"
    alphabet: ClassVar[tuple[str, ...]] = EvenPairs.alphabet
    answers: ClassVar[tuple[str, ...]] = EvenPairs.answers
    start: ClassVar[str] = EvenPairs.start

    def step(self, state: str, symbol: str) -> tuple[str, str | None]:
        return step_and_ask(ASKED, state, symbol)
