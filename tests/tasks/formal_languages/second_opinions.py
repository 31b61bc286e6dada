"""The answers of each language, computed from whole strings without the machines of `tasks/`.

`OPINIONS[name](symbols)` returns an answer at each symbol, or None if none is asked for.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

ASK = "?"
Answers = list[str | None]


def of_prefixes(accepts: Callable[[str], object], yes: str, no: str) -> Callable[..., Answers]:
    """Answer `yes` after each prefix that is accepted, else `no`."""

    def answers(symbols: Sequence[str]) -> Answers:
        text = "".join(symbols)
        return [yes if accepts(text[:end]) else no for end in range(1, len(text) + 1)]

    return answers


def of_questions(solve: Callable[[list[str]], str]) -> Callable[..., Answers]:
    """Answer each question with the next symbol of the solution."""

    def answers(symbols: Sequence[str]) -> Answers:
        given = [symbol for symbol in symbols if symbol != ASK]
        solution = solve(given)
        assert len(solution) == len(symbols) - len(given)
        return [None] * len(given) + list(solution)

    return answers


def of_each_prefix(solve: Callable[[list[str]], str], ends: str = "") -> Callable[..., Answers]:
    """Answer after each prefix with its solution; after those that end with one of `ends`, if any.

    A solution is one symbol.
    """

    def answers(symbols: Sequence[str]) -> Answers:
        asked = (symbol in (ends or symbols) for symbol in symbols)
        return [solve(list(symbols[:end])) if a else None for end, a in enumerate(asked, 1)]

    return answers


def next_symbol(letters: str) -> Callable[..., Answers]:
    """Answer with the next symbol of the string (abc) -> a^n b^n c^n, or N if it is open."""

    def answers(symbols: Sequence[str]) -> Answers:
        text = "".join(symbols)
        found = []
        for end in range(1, len(text) + 1):
            strings = ("".join(c * n for c in letters) + "S" for n in range(1, len(text) + 2))
            following = {s[end] for s in strings if s[:end] == text[:end]}
            found.append(following.pop() if len(following) == 1 else "N")
        return found

    return answers


def reduced(text: str, pair: str) -> str:
    while pair in text:
        text = text.replace(pair, "")
    return text


def shuffle_2(symbols: Sequence[str]) -> Answers:
    found = []
    for end in range(1, len(symbols) + 1):
        prefix = "".join(symbols[:end])
        is_round = bool(reduced(re.sub(r"[\[\]]", "", prefix), "()"))
        is_square = bool(reduced(re.sub(r"[()]", "", prefix), "[]"))
        found.append({(0, 0): "0", (0, 1): "1", (1, 0): "2", (1, 1): "3"}[is_round, is_square])
    return found


def in_a_n_b_n_sigma(text: str) -> bool:
    return any(text.startswith("a" * n + "b" * n) for n in range(1, len(text) // 2 + 1))


def legacy_a_n_b_n_sigma(text: str) -> bool:
    """Return whether an a has followed the first run of b, as long as the run of a before it."""
    match = re.match(r"(a+)(b+)a", text)
    return bool(match) and len(match[1]) == len(match[2])


def stack(symbols: list[str]) -> str:
    kept: list[str] = []
    for symbol in symbols:
        if symbol == "pop":
            del kept[-1:]
        else:
            kept.append(symbol[-1])
    return "".join(reversed(kept)).ljust(len(symbols) + 1, ".")


def missing(symbols: list[str]) -> str:
    halves = np.array_split(np.array(symbols), 2)
    (place,) = np.flatnonzero(halves[0] != halves[1])
    return next(half[place] for half in halves if half[place] != "_")


def product(symbols: Sequence[str]) -> Answers:
    """Multiply permutation matrices; row i of a product has a 1 in the column of i's image."""
    found, matrix = [], np.eye(len(symbols[0]), dtype=int)
    for symbol in symbols:
        matrix = matrix @ np.eye(len(symbol), dtype=int)[[int(c) - 1 for c in symbol]]
        found.append("".join(str(1 + row.argmax()) for row in matrix))
    return found


def even_pairs(symbols: list[str]) -> str:
    return "FT"[sum(x + y in ("ab", "ba") for x, y in pairwise(symbols)) % 2 == 0]


def place(symbols: list[str]) -> str:
    return str((symbols.count("+") - symbols.count("-")) % 5)


def value(symbols: list[str]) -> str:
    return str(eval("".join(symbols)) % 5)


OPINIONS: dict[str, Callable[[Sequence[str]], Answers]] = {
    "parity": of_prefixes(lambda text: text.count("1") % 2 == 0, "T", "F"),
    "aa": of_prefixes(re.compile("(aa)*").fullmatch, "1", "0"),
    "abab": of_prefixes(re.compile("(abab)*").fullmatch, "1", "0"),
    "even_pairs": of_questions(even_pairs),
    "even_pairs_prefixes": of_each_prefix(even_pairs),
    "cycle_navigation": of_questions(place),
    "cycle_navigation_prefixes": of_each_prefix(place),
    "modular_arithmetic": of_questions(value),
    "modular_arithmetic_prefixes": of_each_prefix(value, ends="01234"),
    "s3": product,
    "s5": product,
    "a_n_b_n": next_symbol("ab"),
    "a_n_b_n_c_n": next_symbol("abc"),
    "shuffle_2": shuffle_2,
    "dyck_1": of_prefixes(lambda text: reduced(text, "()"), "1", "0"),
    "reset_dyck_1": of_prefixes(lambda text: reduced(text.split("1")[-1], "()"), "1", "0"),
    "l5": of_prefixes(lambda text: abs(text.count("a") - text.count("b")) < 5, "1", "0"),
    "a_n_b_n_sigma": of_prefixes(in_a_n_b_n_sigma, "1", "0"),
    "reverse_string": of_questions(lambda s: "".join(s)[::-1]),
    "stack_manipulation": of_questions(stack),
    "modular_arithmetic_brackets": of_questions(value),
    "bucket_sort": of_questions(lambda s: "".join(sorted(s))),
    "missing_duplicate": of_questions(missing),
}
