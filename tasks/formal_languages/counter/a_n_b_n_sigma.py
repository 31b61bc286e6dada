"""a^n b^n Sigma*: whether the string so far begins with a^n b^n, with n its number of leading a.

    a a b b b a
    0 0 0 1 1 1

Half of the strings are uniform, half begin with a^n b^n, with n uniform up to half the length.
Source: Merrill et al. 2020, "A Formal Hierarchy of RNN Architectures", section 5.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import ClassVar, NamedTuple

from fastweights.tasks.formal_languages.language import Language


class State(NamedTuple):
    """The phase (a, b, in the language, or out of it), and the number of b still to come."""

    phase: str = "a"
    b_to_come: int = 0


IN, OUT = State("in"), State("out")


@dataclass(frozen=True, kw_only=True)
class ANBNSigma(Language):
    """The state is the phase of the string and a counter."""

    sizes: tuple[int, int] = (64, 64)
    legacy_labels: bool = False
    """Label as in the published code: the answer changes at the first a after equally many b, and
    never if there are more b."""

    name: ClassVar[str] = "a_n_b_n_sigma"
    title: ClassVar[str] = "a^n b^n Sigma*"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    start: ClassVar[State] = State()

    def step(self, state: State, symbol: str) -> tuple[State, str]:
        state = self._next(state, symbol)
        return state, "1" if state == IN else "0"

    def _next(self, state: State, symbol: str) -> State:
        reading, left = state
        if state in (IN, OUT):
            return state
        if symbol == "a":
            if reading == "a":
                return State("a", left + 1)
            return IN if left == 0 else OUT
        if left == 0:  # one b too many
            return OUT
        return IN if left == 1 and not self.legacy_labels else State("b", left - 1)

    def draw(self, random: Random, size: int) -> Iterable[str]:
        count = random.randint(0, size // 2) if random.random() < 0.5 else 0
        return [*"a" * count, *"b" * count, *random.choices(self.alphabet, k=size - 2 * count)]
