"""Samplers of well-nested brackets: the published generator's, and one for any length.

    S -> ( S )  with probability 1/2,  S S  with 1/4,  and nothing with 1/4

Source: Bhattamishra et al. 2020, published code.
"""

from itertools import accumulate
from random import Random

ROUND = ("()",)
LONGEST_GRAMMAR_STRING = 400  # longer strings of the grammar are too rare and nest too deep
_DRAWS = 10_000


def grammar_string(random: Random, longest: int, pairs: tuple[str, ...] = ROUND) -> str:
    """Return a string of at most `longest` symbols; subtrees that do not fit are dropped."""
    return _grow(random, 0, longest, pairs)


def nested(random: Random, low: int, high: int, pairs: tuple[str, ...] = ROUND) -> str:
    """Return a string of `low` to `high` symbols, from the grammar if it has them often enough.

    Otherwise the brackets are of one kind, and all strings of an even length in the range are
    equally likely among those of their length.
    """
    if high <= LONGEST_GRAMMAR_STRING:
        for _ in range(_DRAWS):
            string = grammar_string(random, high, pairs)
            if low <= len(string):
                return string
    return uniform(random, random.randint(-(-low // 2), high // 2), pairs)


def uniform(random: Random, count: int, pairs: tuple[str, ...] = ROUND) -> str:
    """Return a string of `count` pairs, each equally likely, by the cycle lemma.

    Of all rotations of `count` opening and `count + 1` closing brackets, exactly one is a
    well-nested string and a closing bracket.
    """
    steps = [1] * count + [-1] * (count + 1)
    random.shuffle(steps)
    heights = list(accumulate(steps))
    first = heights.index(min(heights)) + 1
    opened: list[str] = []
    found = []
    for step in (steps[first:] + steps[:first])[:-1]:
        if step > 0:
            opened.append(random.choice(pairs))
            found.append(opened[-1][0])
        else:
            found.append(opened.pop()[1])
    return "".join(found)


def _grow(random: Random, outside: int, longest: int, pairs: tuple[str, ...]) -> str:
    """Return a subtree with `outside` brackets around it."""
    if outside >= longest:
        return ""
    share = random.random()
    string = ""
    if share < 1 / 2:
        pair = random.choice(pairs)
        string = pair[0] + _grow(random, outside + 2, longest, pairs) + pair[1]
    elif share < 3 / 4:
        string = "".join(_grow(random, outside, longest, pairs) for _ in range(2))
    return string if len(string) <= longest else ""
