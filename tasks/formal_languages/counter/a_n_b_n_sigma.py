"""a^n b^n Sigma*: whether the string read so far begins with a^n b^n, n the number of first a.

    a a b b b a
    0 0 0 1 1 1

Half of the strings are uniform, half begin with a^n b^n, n uniform up to half the length.
Source: Merrill et al. 2020, "A Formal Hierarchy of RNN Architectures", section 5.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language

State = tuple[str, int]  # phase (a, b, in the language, out of it) and number of b to come
IN, OUT = ("in", 0), ("out", 0)


@dataclass(frozen=True, kw_only=True)
class ANBNSigma(Language):
    """The state is the phase of the string, and the number of b to come."""

    sizes: tuple[int, int] = (64, 64)
    legacy_labels: bool = False
    """Label as the published code does: the answer changes at the first a after equally many b,
    and never if there are more b."""

    name: ClassVar[str] = "a_n_b_n_sigma"
    title: ClassVar[str] = "a^n b^n Sigma*"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    start: ClassVar[State] = ("a", 0)

    def step(self, state: State, symbol: str) -> tuple[State, str]:
        state = self._next(state, symbol)
        return state, "1" if state == IN else "0"

    def _next(self, state: State, symbol: str) -> State:
        reading, left = state
        if state in (IN, OUT):
            return state
        if symbol == "a":
            if reading == "a":
                return "a", left + 1
            return IN if left == 0 else OUT
        if left == 0:  # one b too many
            return OUT
        return IN if left == 1 and not self.legacy_labels else ("b", left - 1)

    def draw(self, random: Random, size: int) -> Iterable[str]:
        count = random.randint(0, size // 2) if random.random() < 0.5 else 0
        return [*"a" * count, *"b" * count, *random.choices(self.alphabet, k=size - 2 * count)]

    def level(self, state: State) -> float:
        return float(state[1])
