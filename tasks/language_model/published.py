"""The published counts of WikiText, and the comparison of a text with them.

Source: Merity et al. 2016, Table 1 (words); every line, blank ones included, adds one `<eos>`.
"""

from pathlib import PurePath
from typing import NamedTuple


class Counts(NamedTuple):
    """Tokens of each split, and types."""

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
    """Return which published text this is, by its name or its held-out splits; or None.

    `place` is its file or folder; the names of the folders above it do not count.
    """
    named = PurePath(place).name.lower().replace("_", "-")
    for name in PUBLISHED:
        if f"{name.lower()}-" in f"{named}-":
            return name
    if (found.valid, found.test) == (217_646, 245_569):
        return named_after(found)
    return None


def named_after(found: Counts) -> str:
    """Return which of the two a text with so many training tokens is, if it is WikiText."""
    return "WikiText-103" if found.train > _BETWEEN else "WikiText-2"


def counts_comparison(name: str, found: Counts) -> tuple[list[str], bool]:
    """Return a line for each count, found and expected, and whether all are as published."""
    expected, lines = PUBLISHED[name], []
    for what, ours, theirs in zip(Counts._fields, found, expected, strict=True):
        unit = "types" if what == "types" else f"{what} tokens"
        verdict = "as expected" if ours == theirs else f"expected {theirs:,}: NOT as published"
        lines.append(f"{name} {unit}: found {ours:,}, {verdict}")
    return lines, found == expected
