"""Even pairs: whether the total number of pairs ab and ba is even.

    a a b b a ?
    _ _ _ _ _ T

The number is even if and only if the last symbol equals the first.
Source: Delétang et al. 2023, section 4.
"""

from typing import ClassVar

from fastweights.tasks.formal_languages.language import ASK, Language


class EvenPairs(Language):
    """The state is the first and the last symbol."""

    name: ClassVar[str] = "even_pairs"
    title: ClassVar[str] = "even pairs"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b")
    answers: ClassVar[tuple[str, ...]] = ("F", "T")
    asks: ClassVar[bool] = True
    start: ClassVar[str] = ""

    def step(self, state: str, symbol: str) -> tuple[str, str | None]:
        if symbol == ASK:
            return state, "T" if state[:1] == state[-1:] else "F"
        return (state or symbol)[0] + symbol, None
