"""The word problem of a symmetric group: the product of the permutations read so far.

    213 213 231 231 231
    213 123 231 312 123

A permutation is written as its images: 231 sends 1 to 2, 2 to 3 and 3 to 1. The product applies
the permutations in reading order. Constant-depth networks with modular counters can solve S3. They
cannot solve S5 if TC0 is not NC1, as is believed.
Source: Barrington 1989; as a probe of state tracking: Merrill et al. 2024, "The Illusion of State
in State-Space Models", and Grazzi et al. 2024.
"""

from itertools import permutations
from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language


def _elements(degree: int) -> tuple[str, ...]:
    return tuple("".join(map(str, images)) for images in permutations(range(1, degree + 1)))


class WordProblem(Language):
    """Abstract: the state is the product so far."""

    def step(self, state: str, symbol: str) -> tuple[str, str]:
        state = "".join(symbol[int(image) - 1] for image in state)
        return state, state


class S3(WordProblem):
    """The word problem of the six permutations of three elements."""

    name: ClassVar[str] = "s3"
    title: ClassVar[str] = "word problem of S3"
    alphabet: ClassVar[tuple[str, ...]] = _elements(3)
    answers: ClassVar[tuple[str, ...]] = alphabet
    start: ClassVar[str] = alphabet[0]


class S5(WordProblem):
    """The word problem of the 120 permutations of five elements."""

    name: ClassVar[str] = "s5"
    title: ClassVar[str] = "word problem of S5"
    alphabet: ClassVar[tuple[str, ...]] = _elements(5)
    answers: ClassVar[tuple[str, ...]] = alphabet
    start: ClassVar[str] = alphabet[0]
