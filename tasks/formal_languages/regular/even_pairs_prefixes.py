"""Even pairs of every prefix: whether the number of pairs ab and ba so far is even.

    a a b b a
    T T F F T

Source: `even_pairs.py`, with an answer at every position, as parity has.
"""

from typing import ClassVar

from fastweights.tasks.formal_languages.language import OfPrefixes
from fastweights.tasks.formal_languages.regular.even_pairs import EvenPairs


class EvenPairsPrefixes(OfPrefixes, EvenPairs):
    """The state is the first and the last symbol."""

    name: ClassVar[str] = "even_pairs_prefixes"
    title: ClassVar[str] = "even pairs, prefixes"
