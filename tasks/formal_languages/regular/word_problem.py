"""The word problem of a symmetric group: the product of the permutations read so far.

    213 213 231 231 231
    213 123 231 312 123

A permutation is written as its images: 231 sends 1 to 2, 2 to 3 and 3 to 1; the product applies
what is read first, first. S3 can be solved by layers of constant depth with modular counters. S5
cannot, if those have less power than all regular languages have (TC0 is not NC1), as is believed.
Source: Barrington 1989; as a probe of state tracking: Merrill et al. 2024, "The Illusion of State
in State-Space Models", and Grazzi et al. 2024.
"""

from collections.abc import Iterable
from itertools import permutations
from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.language import Language


def _elements(degree: int) -> tuple[str, ...]:
    return tuple("".join(map(str, images)) for images in permutations(range(1, degree + 1)))


class WordProblem(Language):
    """Abstract: the state is the product."""

    def step(self, state: str, symbol: str) -> tuple[str, str]:
        state = "".join(symbol[int(image) - 1] for image in state)
        return state, state

    def draw(self, random: Random, size: int) -> Iterable[str]:
        return random.choices(self.alphabet, k=size)

    def level(self, state: str) -> float:
        return float(self.alphabet.index(state))


class S3(WordProblem):
    """Six permutations of three."""

    name: ClassVar[str] = "s3"
    title: ClassVar[str] = "word problem of S3"
    alphabet: ClassVar[tuple[str, ...]] = _elements(3)
    answers: ClassVar[tuple[str, ...]] = alphabet
    start: ClassVar[str] = alphabet[0]


class S5(WordProblem):
    """A hundred and twenty permutations of five."""

    name: ClassVar[str] = "s5"
    title: ClassVar[str] = "word problem of S5"
    alphabet: ClassVar[tuple[str, ...]] = _elements(5)
    answers: ClassVar[tuple[str, ...]] = alphabet
    start: ClassVar[str] = alphabet[0]
