"""Vocabularies: words as in the published models, or bytes.

Words are tokenised as in Transformer-XL: `line.split()`, case-sensitive, `<eos>` after every line,
blank lines included. `<eos>` is number 0. The other words follow by descending count; words with
equal counts are in order of first occurrence. A word outside the vocabulary becomes `<unk>`.
"""

import codecs
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

EOS, UNKNOWN = "<eos>", "<unk>"
KINDS = ("words", "bytes")


def _encoded(text: str) -> bytes:
    """Encode text in UTF-8; a lone surrogate, which a decoder may leave, becomes three bytes."""
    return text.encode("utf-8", "surrogatepass")


class Line(NamedTuple):
    """A line as tokens, and the size of its text."""

    tokens: Sequence[int]
    words: int  # including the end of the line
    length: int  # bytes in UTF-8
    replaced: int  # words outside the vocabulary, except the text's own `<unk>`


class Vocabulary(ABC):
    """A mapping between the tokens of a text and numbers."""

    kind: str
    newline: str | None  # line ending, as for `open`

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of types."""

    @abstractmethod
    def line(self, text: str) -> Line:
        """Convert a line, including its end, to token numbers."""

    @abstractmethod
    def prompt(self, text: str) -> list[int]:
        """Convert text that may end within a line; may raise a one-line `ValueError`."""

    @abstractmethod
    def pieces(self, tokens: Iterable[int]) -> Iterator[str]:
        """Yield the text that each token adds; "" while a character is incomplete."""

    @abstractmethod
    def plain(self) -> dict[str, Any]:
        """Return the vocabulary as JSON types, for `vocabulary_from_plain`."""

    def text(self, tokens: Iterable[int]) -> str:
        """Convert token numbers to text."""
        return "".join(self.pieces(tokens))


class Words(Vocabulary):
    """Words and `<eos>`."""

    kind, newline = "words", None

    def __init__(self, types: Sequence[str]) -> None:
        self.types = list(types)
        self.numbers = {word: number for number, word in enumerate(self.types)}
        if len(self.numbers) < len(self.types) or self.numbers.get(EOS) != 0:
            raise ValueError(f"a word vocabulary must begin with {EOS} and have each word once")
        self.unknown = self.numbers.get(UNKNOWN)

    @classmethod
    def of(cls, counts: Counter[str], min_count: int) -> "Words":
        """Build a vocabulary from word counts; words below `min_count` become `<unk>`.

        `<unk>` is ranked by its own count in the text plus the counts of the words it replaces.
        """
        kept = {word: n for word, n in counts.items() if n >= min_count and word != UNKNOWN}
        unknown = counts[UNKNOWN] + sum(n for n in counts.values() if n < min_count)
        # The sort is stable: words with equal counts stay in order of first occurrence.
        in_order = counts if UNKNOWN in counts else [*counts, UNKNOWN]
        number = {**kept, UNKNOWN: unknown}
        types = [word for word in in_order if word in number and word != EOS]
        return cls([EOS, *sorted(types, key=number.__getitem__, reverse=True)])

    @property
    def size(self) -> int:
        return len(self.types)

    def line(self, text: str) -> Line:
        words = text.split()
        get, unknown = self.numbers.get, self.unknown
        tokens = [get(word, unknown) for word in words]
        replaced = tokens.count(unknown) - words.count(UNKNOWN)
        tokens.append(0)
        length = len(text) if text.isascii() else len(_encoded(text))
        return Line(tokens, len(tokens), length, replaced)

    def prompt(self, text: str) -> list[int]:
        lines = text.split("\n")
        tokens = [number for line in lines[:-1] for number in self.line(line).tokens]
        return tokens + list(self.line(lines[-1]).tokens[:-1])

    def pieces(self, tokens: Iterable[int]) -> Iterator[str]:
        begins_line = True
        for token in tokens:
            if token == 0:
                yield "\n"
            else:
                yield self.types[token] if begins_line else f" {self.types[token]}"
            begins_line = token == 0

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind, "types": self.types}


class Bytes(Vocabulary):
    """The bytes of the text in UTF-8, with line ends unchanged."""

    kind, newline = "bytes", "\n"

    @property
    def size(self) -> int:
        return 256

    def line(self, text: str) -> Line:
        content = _encoded(text)
        return Line(np.frombuffer(content, np.uint8), len(text.split()) + 1, len(content), 0)

    def prompt(self, text: str) -> list[int]:
        return list(_encoded(text))

    def pieces(self, tokens: Iterable[int]) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return (decoder.decode(bytes([token])) for token in tokens)

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind}


def vocabulary_to_json(vocabulary: Vocabulary) -> bytes:
    """Return the content of a vocabulary file; lone surrogates from the text are kept."""
    text = json.dumps(vocabulary.plain(), ensure_ascii=False)
    return _encoded(text)


def vocabulary_from_plain(plain: dict[str, Any]) -> Vocabulary:
    """Rebuild a vocabulary from `Vocabulary.plain`; raise a one-line `ValueError` if malformed."""
    if plain.get("kind") == Bytes.kind:
        return Bytes()
    types = plain.get("types")
    if plain.get("kind") != Words.kind or not isinstance(types, list):
        raise ValueError("it is not a vocabulary")
    if not all(isinstance(word, str) for word in types):
        raise ValueError("a word vocabulary must consist of strings")
    return Words(types)
