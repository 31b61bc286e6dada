"""Samplers of well-nested brackets: the published generator, and a sampler for any length.

    S -> ( S )  with probability 1/2,  S S  with 1/4,  and nothing with 1/4

Source: Bhattamishra et al. 2020, published code.
"""

from itertools import accumulate
from random import Random

ROUND = ("()",)
_LONGEST_GRAMMAR_STRING = 400  # the grammar generates longer strings too rarely
_DRAWS = 10_000


def grammar_string(random: Random, longest: int, pairs: tuple[str, ...] = ROUND) -> str:
    """Return a string of at most `longest` symbols; subtrees that do not fit are dropped."""
    return _grow(random, longest, pairs)


def grammar_serves(low: int, high: int) -> bool:
    """Return whether the grammar yields strings of these lengths often enough to wait for one."""
    return low < high <= _LONGEST_GRAMMAR_STRING


def nested(random: Random, low: int, high: int, pairs: tuple[str, ...] = ROUND) -> str:
    """Return a string of `low` to `high` symbols, from the grammar if it yields one often enough.

    Otherwise, and for a single length, all even lengths in the range are equally likely, and so are
    all strings of a length.
    """
    if grammar_serves(low, high):
        for _ in range(_DRAWS):
            string = grammar_string(random, high, pairs)
            if low <= len(string):
                return string
    return uniform(random, random.randint(-(-low // 2), high // 2), pairs)


def uniform(random: Random, count: int, pairs: tuple[str, ...] = ROUND) -> str:
    """Return a string of `count` pairs, all strings equally likely, by the cycle lemma.

    Of all rotations of `count` opening and `count + 1` closing brackets, exactly one is a
    well-nested string followed by a closing bracket.
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


def _grow(random: Random, longest: int, pairs: tuple[str, ...]) -> str:
    """Return a string of the grammar; no recursion, as long strings nest too deeply for Python."""
    todo: list[int | str | None] = [0]
    done: list[str] = []  # subtrees
    while todo:
        match todo.pop():
            case int(outside):  # grow a subtree inside this many brackets
                share = random.random() if outside < longest else 1
                if share < 1 / 2:
                    todo += [random.choice(pairs), outside + 2]
                elif share < 3 / 4:
                    todo += [None, outside, outside]
                else:
                    done.append("")
                continue
            case str(pair):  # enclose the newest subtree in the pair
                string = pair[0] + done.pop() + pair[1]
            case None:  # join the two newest subtrees
                second = done.pop()
                string = done.pop() + second
        done.append(string if len(string) <= longest else "")
    return done.pop()
