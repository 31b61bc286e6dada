"""L5: whether the numbers of a and b read so far differ by less than five.

    a a a a a b
    1 1 1 1 0 1

Source: Merrill et al. 2020, "A Formal Hierarchy of RNN Architectures", section 5.
"""

from dataclasses import dataclass
from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language


@dataclass(frozen=True, kw_only=True)
class L5(Language):
    """The state is the number of a minus the number of b."""

    sizes: tuple[int, int] = (64, 64)

    name: ClassVar[str] = "l5"
    title: ClassVar[str] = "L5"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")

    def step(self, state: int, symbol: str) -> tuple[int, str]:
        state += 1 if symbol == "a" else -1
        return state, "1" if abs(state) < 5 else "0"
