"""Published token counts of WikiText, and comparison of a text with them.

Source: Merity et al. 2016, Table 1 (words); every line, including blank lines, adds one `<eos>`.
"""

from pathlib import PurePath
from typing import NamedTuple


class Counts(NamedTuple):
    """Numbers of tokens in each split, and of types."""

    train: int
    valid: int
    test: int
    types: int


PUBLISHED = {
    "WikiText-103": Counts(103_227_021, 217_646, 245_569, 267_735),
    "WikiText-2": Counts(2_088_628, 217_646, 245_569, 33_278),
}
_BETWEEN = 20_000_000  # training tokens: WikiText-2 has fewer, WikiText-103 more


def recognised(place: str, found: Counts) -> str | None:
    """Return the name of a published text, recognised by file name or held-out splits; else None.

    `place` is the file or folder of the text; names of parent folders are ignored.
    """
    named = PurePath(place).name.lower().replace("_", "-")
    for name in PUBLISHED:
        if f"{name.lower()}-" in f"{named}-":
            return name
    if (found.valid, found.test) == (217_646, 245_569):
        return named_after(found)
    return None


def named_after(found: Counts) -> str:
    """Return which WikiText has about this many training tokens, for a text known to be one."""
    return "WikiText-103" if found.train > _BETWEEN else "WikiText-2"


def counts_comparison(name: str, found: Counts) -> tuple[list[str], bool]:
    """Return a line per count, found and expected, and whether all are as published."""
    expected, lines = PUBLISHED[name], []
    for what, ours, theirs in zip(Counts._fields, found, expected, strict=True):
        unit = "types" if what == "types" else f"{what} tokens"
        verdict = "as expected" if ours == theirs else f"expected {theirs:,}: NOT as published"
        lines.append(f"{name} {unit}: found {ours:,}, {verdict}")
    return lines, found == expected
