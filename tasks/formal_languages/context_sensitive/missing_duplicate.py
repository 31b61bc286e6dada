"""Missing duplicate: the symbol replaced by a blank in a string that is written twice.

    0 1 1 0 _ 1 ?
    _ _ _ _ _ _ 1

Source: Delétang et al. 2023, section 4.
"""

from collections.abc import Iterable
from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.language import ASK, Language

BLANK = "_"


class MissingDuplicate(Language):
    """The state is the string read so far; sizes are lengths without the question."""

    name: ClassVar[str] = "missing_duplicate"
    title: ClassVar[str] = "missing duplicate"
    alphabet: ClassVar[tuple[str, ...]] = ("0", "1", BLANK)
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    asks: ClassVar[bool] = True
    multiple: ClassVar[int] = 2
    start: ClassVar[str] = ""
    is_stack: ClassVar[bool] = True

    def step(self, state: str, symbol: str) -> tuple[str, str | None]:
        if symbol != ASK:
            if symbol == BLANK and BLANK in state:
                raise ValueError("a second blank")
            return state + symbol, None
        half = len(state) // 2
        hidden = state[(state.index(BLANK) + half) % len(state)]
        whole = state.replace(BLANK, hidden)
        if whole[:half] != whole[half:]:
            raise ValueError("the halves differ")
        return state, hidden

    def draw(self, random: Random, size: int) -> Iterable[str]:
        symbols = random.choices("01", k=size // 2) * 2
        symbols[random.randrange(size)] = BLANK
        return symbols
