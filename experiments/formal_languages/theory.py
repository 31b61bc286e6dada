"""Theoretical results on a memory and a language: whether suitable weights can exist.

Sources: `experiments/scores/languages_theory.csv` names one per statement.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from fastweights.evaluation import read_rows
from fastweights.experiments.published import SCORES

_TABLE = SCORES / "languages_theory.csv"
VERDICTS = ("can", "cannot")


class Statement(NamedTuple):
    """A theoretical result on a memory and a language, for any length of strings.

    `verdict` is `can` or `cannot`.
    """

    verdict: str
    source: str


@cache
def theory() -> Mapping[tuple[str, str], Statement]:
    """Return statements by language and memory; for each pair, the file's first row."""
    found: dict[tuple[str, str], Statement] = {}
    for row in read_rows(_TABLE):
        statement = Statement(row["verdict"], row["source"])
        for language in row["languages"].split():
            for memory in row["memories"].split():
                found.setdefault((language, memory), statement)
    return found


def sources(languages: Iterable[str], memories: Iterable[str]) -> list[str]:
    """Return the sources of the statements about these languages and memories, each once."""
    memories = list(memories)
    pairs = ((language, memory) for language in languages for memory in memories)
    return list(dict.fromkeys(theory()[pair].source for pair in pairs if pair in theory()))


def said_of(language: str, memories: Iterable[str], numbers: Mapping[str, int]) -> str:
    """Return ``can: `lstm` [2]; cannot: `lt` [1]``, with each source's number in `numbers`."""
    memories, parts = list(memories), []
    for verdict in VERDICTS:
        known = [name for name in memories if (language, name) in theory()]
        alike = [name for name in known if theory()[language, name].verdict == verdict]
        named = (f"`{name}` [{numbers[theory()[language, name].source]}]" for name in alike)
        if alike:
            parts.append(f"{verdict}: {', '.join(named)}")
    return "; ".join(parts)
