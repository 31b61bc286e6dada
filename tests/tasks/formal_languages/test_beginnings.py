"""Machines refuse a symbol where no string of the language has it, and no other symbol."""

from itertools import product
from random import Random

import pytest

from fastweights.tasks import LANGUAGES

pytestmark = pytest.mark.usefixtures("shapes_unchecked")  # the machines make millions of steps
LENGTH = 4  # of the beginnings
LARGEST = 9  # size of the strings: every beginning of four symbols begins one of them
# Here the machine accepts more than the language has: it would need more states to refuse.
LENIENT = ("reset_dyck_1", "stack_manipulation", "modular_arithmetic_brackets")


def accepts(language, symbols) -> bool:
    try:
        language.run(symbols)
    except ValueError:
        return False
    return True


def drawn_beginnings(language) -> set[tuple[str, ...]]:
    random = Random(1)
    strings = [tuple(language.string(random, 1, LARGEST)) for _ in range(12_000)]
    ends = range(1, LENGTH + 1)
    return {string[:end] for string in strings for end in ends if end <= len(string)}


@pytest.mark.parametrize("name", [name for name in LANGUAGES if name not in (*LENIENT, "s3", "s5")])
def test_the_beginnings_that_are_accepted_are_those_of_strings(name):
    language = LANGUAGES[name]()
    symbols = language.alphabet
    every = {text for end in range(1, LENGTH + 1) for text in product(symbols, repeat=end)}
    accepted, drawn = (
        {text for text in every if accepts(language, text)},
        drawn_beginnings(language),
    )
    refused, needless = sorted(drawn - accepted)[:3], sorted(accepted - drawn)[:3]
    assert not refused, f"the machine of {name} refuses beginnings of its strings: {refused}"
    assert not needless, (
        f"no string of {name} begins with {needless}: raise ValueError in `step`; if that takes "
        f"more states, add {name!r} to LENIENT in this file"
    )


@pytest.mark.parametrize("name", LENIENT)
def test_no_beginning_of_a_string_is_refused(name):
    language = LANGUAGES[name]()
    assert all(accepts(language, text) for text in drawn_beginnings(language))


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("a_n_b_n", "b bb aba aabbb aabba"),
        ("a_n_b_n_c_n", "c b ac abb abcc abca aabbcb"),
        ("dyck_1", ") ()) (()))("),
        ("reset_dyck_1", ")) (1)"),
        ("shuffle_2", "] ([)) [)"),
        ("abab", "b aa abb"),
        ("modular_arithmetic", "+ 11 1++ 1+? 1+"),
        ("modular_arithmetic_brackets", "1+2 () (1+2+3) (1+) ((1+2)? --1 11 (*1) (1+2)) 1(2)"),
        ("missing_duplicate", "01? 01_ 0101? 01__ 01_0?"),
        ("reverse_string", "a?? ?"),
        ("bucket_sort", "1?? ?"),
    ],
)
def test_what_is_no_string(name, texts):
    """Where the language asks questions, the text is refused with them."""
    language = LANGUAGES[name]()
    for text in texts.split():
        symbols = language.with_questions(language.parse(text))
        assert not accepts(language, symbols), text
