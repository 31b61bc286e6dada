"""A tokenised text: memory-mapped int32 files, created once and cached.

    FOLDER/<digest of the text and of its tokenisation>/
        train.int32, valid.int32, test.int32    little-endian token numbers, concatenated
        vocabulary.json                         as `Vocabulary.plain`
        meta.json                               counts and digests; written last

A folder without `meta.json` is unfinished; a folder whose files have other digests is damaged.
Either is rebuilt. If two processes need the same folder, one builds it while the other waits.
Memory holds the vocabulary and one line, however long the text is.
"""

import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastweights.host import (
    UserError,
    describe_os_error,
    one_of,
    read_object,
    remove_partials,
    replacing,
    wait_for_lock,
    write_bytes,
    write_json,
)
from fastweights.tasks.language_model.published import Counts, named_after, recognised
from fastweights.tasks.language_model.source import SPLITS, Source
from fastweights.tasks.language_model.vocabulary import (
    KINDS,
    UNKNOWN,
    Bytes,
    Vocabulary,
    Words,
    vocabulary_from_plain,
    vocabulary_to_json,
)

VERSION = 2
RARE = 3  # WikiText's authors replaced rarer words with `<unk>`
TOKEN = np.dtype("<i4")

Tick = Callable[[str, int], None]  # takes the current task and the number of lines done


@dataclass(frozen=True, kw_only=True)
class CutOptions:
    """Options for converting text to tokens."""

    vocabulary: str = "words"
    """Tokens: words (as published) or bytes."""
    encoding: str = "utf-8"
    """Encoding of the text files."""
    min_count: int | None = None
    """words: minimum number of occurrences; rarer words become <unk> (default: 1 if the text has
    <unk>, else 3)."""

    def check(self) -> None:
        """Raise a one-line `ValueError` for an invalid value."""
        one_of("--vocabulary", self.vocabulary, KINDS)
        try:
            io.TextIOWrapper(io.BytesIO(), encoding=self.encoding)  # only text encodings
        except (LookupError, ValueError) as error:
            raise ValueError(
                f"--encoding {self.encoding!r} is unknown: choose one of Python's, such as utf-8, "
                "latin-1 or utf-16"
            ) from error
        if self.min_count is not None and self.min_count < 1:
            raise ValueError(f"--min-count must be at least 1, not {self.min_count}")
        if self.min_count is not None and self.vocabulary != Words.kind:
            raise ValueError(f"--min-count belongs to --vocabulary {Words.kind}: leave it out")


class Split(NamedTuple):
    """The tokens of a split, and the size of its text."""

    ids: np.ndarray  # int32 [N]
    lines: int
    words: int  # separated by spaces; ends of lines count as words
    length: int  # bytes in UTF-8
    replaced: int  # words that became `<unk>`; the text's own `<unk>` do not count


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A tokenised text: its vocabulary and splits."""

    place: str
    form: str
    digest: str
    vocabulary: Vocabulary
    splits: Mapping[str, Split]

    @property
    def counts(self) -> Counts:
        """The numbers of tokens in each split, and of types."""
        sizes = [len(self.splits[split].ids) for split in SPLITS]
        return Counts(*sizes, self.vocabulary.size)

    @property
    def published_name(self) -> str | None:
        """The name of the published text; None for any other text, and for bytes.

        Files with WikiText's file names count as WikiText, so that their counts are compared.
        """
        if self.vocabulary.kind != Words.kind:
            return None
        if found := recognised(self.place, self.counts):
            return found
        return named_after(self.counts) if self.form.startswith("WikiText") else None


def open_corpus(
    source: Source, options: CutOptions, folder: Path, tick: Tick = lambda *_: None
) -> Corpus:
    """Return the tokenised text from the cache in `folder`; tokenise and cache it if missing.

    Raises:
        UserError: the text cannot be read, or the cache cannot be written.
    """
    called = recognised(source.place, Counts(0, 0, 0, 0))  # determines the vocabulary
    name = hashlib.blake2b(digest_size=12)
    name.update(f"{VERSION} {source.digest()} {called} {options}".encode())
    kept = folder / f"{options.vocabulary}-{name.hexdigest()}"
    found = _read(kept)
    if found is None:
        try:
            kept.mkdir(parents=True, exist_ok=True)
            lock = wait_for_lock(kept)
            try:
                found = _read(kept)  # another process may have built it in the meantime
                if found is None:
                    remove_partials(kept)
                    _make(source, options, kept, tick)
                    found = _read(kept)
            finally:
                lock.release()
        except OSError as error:
            raise UserError(
                f"cannot cache token numbers in {kept} ({describe_os_error(error)}): free space, "
                "or choose another --cache"
            ) from error
    if found is None:
        raise UserError(f"{kept} loses files written to it: give another --cache")
    vocabulary, splits = found
    return Corpus(
        place=source.place,
        form=source.form,
        digest=name.hexdigest(),
        vocabulary=vocabulary,
        splits=splits,
    )


def _make(source: Source, options: CutOptions, kept: Path, tick: Tick) -> None:
    (kept / "meta.json").unlink(missing_ok=True)
    vocabulary = _vocabulary(source, options, tick)
    meta: dict[str, Any] = {"version": VERSION, "place": source.place, "form": source.form}
    for split in SPLITS:
        lines = source.splits[split](options.encoding, vocabulary.newline)
        with replacing(kept / f"{split}.int32") as partial:
            meta[split] = _write_split(lines, vocabulary, partial, split, tick)
        if meta[split]["tokens"] < 2:
            raise UserError(f"--data {source.place} has too little text in its split {split}")
    text = vocabulary_to_json(vocabulary)
    write_bytes(kept / "vocabulary.json", text)
    meta["vocabulary"] = hashlib.blake2b(text).hexdigest()
    write_json(kept / "meta.json", meta)


def _vocabulary(source: Source, options: CutOptions, tick: Tick) -> Vocabulary:
    if options.vocabulary == Bytes.kind:
        return Bytes()
    counts = {split: Counter[str]() for split in SPLITS}
    lines = {
        split: _count(counts[split], source.splits[split](options.encoding, Words.newline), tick)
        for split in SPLITS
    }
    found = Counts(*(counts[split].total() + lines[split] for split in SPLITS), types=0)
    learned = counts["train"]
    if recognised(source.place, found) == "WikiText-2":
        for split in ("valid", "test"):  # the published vocabulary covers all three splits
            learned.update(counts[split])
    return Words.of(learned, options.min_count or (1 if UNKNOWN in learned else RARE))


def _count(counts: Counter[str], lines: Iterator[str], tick: Tick) -> int:
    """Add the words of `lines` to `counts`; return the number of lines."""
    number = 0
    for number, line in enumerate(lines, 1):
        counts.update(line.split())
        if number % 10_000 == 0:
            tick("counting words", number)
    return number


def _write_split(
    lines: Iterator[str], vocabulary: Vocabulary, path: Path, split: str, tick: Tick
) -> dict[str, Any]:
    """Write a split's tokens; return its part of `meta.json`."""
    sums = dict.fromkeys(("tokens", "lines", "words", "length", "replaced"), 0)
    digest = hashlib.blake2b()
    with path.open("wb") as file:
        for number, text in enumerate(lines, 1):
            line = vocabulary.line(text)
            content = np.asarray(line.tokens, TOKEN).tobytes()
            file.write(content)
            digest.update(content)
            sums["tokens"] += len(line.tokens)
            sums["words"] += line.words
            sums["length"] += line.length
            sums["replaced"] += line.replaced
            sums["lines"] = number
            if number % 10_000 == 0:
                tick(f"numbering {split}", number)
    return sums | {"digest": digest.hexdigest()}


def _read(kept: Path) -> tuple[Vocabulary, dict[str, Split]] | None:
    """Return the cached vocabulary and splits; None if missing, unfinished, damaged or outdated."""
    try:
        meta = read_object(kept / "meta.json")
        text = (kept / "vocabulary.json").read_bytes()
        if hashlib.blake2b(text).hexdigest() != meta["vocabulary"]:
            return None
        vocabulary = vocabulary_from_plain(json.loads(text))
        splits = {split: _read_split(kept / f"{split}.int32", meta[split]) for split in SPLITS}
    except (FileNotFoundError, LookupError, TypeError, ValueError):
        return None
    return vocabulary, splits


def _read_split(path: Path, facts: dict[str, Any]) -> Split:
    with path.open("rb") as file:
        if hashlib.file_digest(file, "blake2b").hexdigest() != facts["digest"]:
            raise ValueError("damaged")
    ids = np.memmap(path, TOKEN, "r", shape=(facts["tokens"],))
    # Older caches lack "replaced"; the LookupError makes `open_corpus` rebuild them in place.
    return Split(ids, facts["lines"], facts["words"], facts["length"], facts["replaced"])
