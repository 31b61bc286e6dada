"""Modular arithmetic of every prefix: the value so far of a sum of products, modulo 5.

    1 + 2 * 4 - 3
    1 _ 3 _ 4 _ 1

Source: `modular_arithmetic.py`, with an answer at every digit.
"""

from typing import ClassVar

from fastweights.tasks.formal_languages.language import OfPrefixes
from fastweights.tasks.formal_languages.regular.modular_arithmetic import DIGITS, ModularArithmetic


class ModularArithmeticPrefixes(OfPrefixes, ModularArithmetic):
    """The state is a `Sum`; sizes, which are lengths, are odd."""

    name: ClassVar[str] = "modular_arithmetic_prefixes"
    title: ClassVar[str] = "modular arithmetic, prefixes"

    def can_end_with(self, symbol: str) -> bool:
        return symbol in DIGITS
