"""A text with its three splits, in any of these formats.

wiki.{train,valid,test}.tokens or .raw, {train,valid,test}.txt     in a folder, zip or tar
{train,validation,test}-*.parquet                                  folders of the `datasets` hub
dataset_dict.json, {train,validation,test}/*.arrow                 written by its `save_to_disk`
anything else                                                      the end is held out
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath

from fastweights.host import UserError, expanded
from fastweights.tasks.language_model.parts import Part, Rows, Stream, members, of_file, readable

SPLITS = ("train", "valid", "test")
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
TEXTS = (".txt", ".md", ".rst", ".tex", ".py", ".tokens", ".raw", ".text")
# Formats of a text, recognised by file names; `valid` is also called `validation`.
PLAIN = {
    r"wiki\.(train|valid|test)\.tokens": "WikiText's tokens",
    r"wiki\.(train|valid|test)\.raw": "WikiText's raw text",
    r"(train|valid|test)\.txt": "Transformer-XL's names",
}
TABLES = {
    r"(train|validation|test)-\d+-of-\d+\.parquet": "Parquet",
    r"(?:[\w-]+-)?(train|validation|test)(?:-\d+-of-\d+)?\.(?:parquet|arrow)": "a table a split",
}

_LONG_LINE = 2**16  # bytes
_LONG_WORD = 2**10  # characters

Lines = Callable[[str, str | None], Iterator[str]]  # takes encoding and newline, like `Part.lines`


@dataclass(frozen=True, kw_only=True)
class Source:
    """A text: its location, its files, and the lines of each split."""

    place: str
    form: str
    files: Sequence[tuple[str, Part]]  # with keys; the digest covers keys and contents
    splits: Mapping[str, Lines]

    def digest(self) -> str:
        """Return a digest of format and content, independent of location and dates."""
        found = hashlib.blake2b(self.form.encode(), digest_size=16)
        for role, part in self.files:
            found.update(f"\0{role}\0{part.size}\0".encode())
            for chunk in part.chunks():
                found.update(chunk)
        return found.hexdigest()

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum(part.size for _, part in self.files)


def find_source(path: Path, held_out: float = 0.05) -> Source:
    """Return the text at `path`; without splits, `cut` holds out the end of the text.

    Raises:
        UserError: there is no text, or a split is missing.
    """
    path = expanded(path)
    if not path.exists():
        raise UserError(f"--data {path}: no such file or folder")
    with readable(str(path)):
        if path.is_file():
            return _in_archive(path, held_out) if _is_archive(path) else _cut_file(path, held_out)
        return _in_folder(path, held_out)


def cut(place: str, form: str, parts: Sequence[Part], held_out: float) -> Source:
    """Join parts into one text; its last two fractions `held_out` are `valid` and `test`."""
    if not 0 < held_out < 0.5:
        raise UserError(f"--held-out must lie in (0, 0.5), not {held_out}")
    if not any(part.size for part in parts):
        raise UserError(f"--data {place} is empty")
    ends = (1 - 2 * held_out, 1 - held_out, 1.0)
    shares = zip(SPLITS, (0.0, *ends), ends, strict=False)
    length = cache(partial(_length, parts))
    splits = {split: _portion(parts, length, begin, end) for split, begin, end in shares}
    form = f"{form}; the last {held_out} for test, {held_out} before that for validation"
    files = [(f"part {number}", part) for number, part in enumerate(parts)]
    return Source(place=place, form=form, files=files, splits=splits)


def _portion(
    parts: Sequence[Part], length: Callable[[str, str | None], int], begin: float, end: float
) -> Lines:
    """Return the lines that start within the fractions [begin, end) of the decoded text.

    A line of more than `_LONG_LINE` bytes is split at the bounds: it may be the only line.
    """

    def lines(encoding: str, newline: str | None) -> Iterator[str]:
        total, start = length(encoding, newline), 0
        first, last = round(begin * total), round(end * total)
        for line in _all_lines(parts)(encoding, newline):
            if start >= last:
                return
            size = _utf8(line)
            if size > _LONG_LINE:
                begins, ends = (_place(line, (bound - start) / size) for bound in (first, last))
                if begins < ends:
                    yield line[begins:ends]
            elif start >= first:
                yield line
            start += size

    return lines


def _place(line: str, share: float) -> int:
    """Return the index at a fraction of a line's length, moved to a nearby start of a word if any.

    Fractions below 0 give the start of the line, fractions of at least 1 its end.
    """
    if not 0 < share < 1:
        return 0 if share <= 0 else len(line)
    place = round(share * len(line))
    space = line.find(" ", place, place + _LONG_WORD)
    return place if space < 0 else space + 1


def _length(parts: Sequence[Part], encoding: str, newline: str | None) -> int:
    """Return the size of the text in UTF-8 in bytes, whatever the encoding of its files."""
    return sum(map(_utf8, _all_lines(parts)(encoding, newline)))


def _utf8(line: str) -> int:
    return len(line) if line.isascii() else len(line.encode("utf-8", "replace"))


def _is_archive(path: Path) -> bool:
    return path.name.lower().endswith(ARCHIVES)


def _in_archive(path: Path, held_out: float) -> Source:
    found = members(path)
    if source := _by_name(str(path), found, PLAIN):
        return source
    texts = [part for part in found if _is_text(part.name.removeprefix(f"{path}/"))]
    if not texts:
        raise UserError(f"--data {path} has no text in it; {_expected()}")
    return cut(str(path), "texts in an archive", _shuffled(texts, path), held_out)


def _in_folder(path: Path, held_out: float) -> Source:
    """Return the splits in `path` or in its only subfolder with splits; else cut any text in it."""
    if source := _splits_in(path):
        return source
    inner = [folder for folder in sorted(path.iterdir()) if folder.is_dir()]
    found = {folder: source for folder in inner if (source := _splits_in(folder))}
    if len(found) > 1:
        names = ", ".join(str(folder) for folder in found)
        raise UserError(f"--data {path} has several data sets: choose one of {names}")
    if found:
        return next(iter(found.values()))
    archives = [file for file in sorted(path.iterdir()) if file.is_file() and _is_archive(file)]
    if len(archives) == 1:
        return _in_archive(archives[0], held_out)
    within = ((file, str(file.relative_to(path))) for file in sorted(path.rglob("*")))
    texts = [of_file(file) for file, name in within if _is_text(name) and file.is_file()]
    texts = [part for part in texts if part.size]
    if not texts:
        raise UserError(f"--data {path} has no text in it; {_expected()}")
    return cut(str(path), "a folder of texts", _shuffled(texts, path), held_out)


def _splits_in(folder: Path) -> Source | None:
    files = [of_file(file) for file in sorted(folder.iterdir()) if file.is_file()]
    if source := _by_name(str(folder), files, PLAIN):
        return source
    if (folder / "dataset_dict.json").exists():
        return _saved_to_disk(folder)
    tables = [Rows(Path(part.name)) for part in files]
    return _by_name(str(folder), tables, TABLES)


def _saved_to_disk(folder: Path) -> Source:
    parts = {
        split: [Rows(file) for file in sorted((folder / name).glob("*.arrow"))]
        for split, name in zip(SPLITS, ("train", "validation", "test"), strict=True)
    }
    return _of_splits(str(folder), "save_to_disk", parts)


def _by_name(place: str, found: Sequence[Part], forms: Mapping[str, str]) -> Source | None:
    """Return the splits among files, by the first of `forms` that matches any file name.

    In an archive, the files may be in folders; each split uses its shallowest folder level.
    """
    for pattern, form in forms.items():
        splits: dict[str, list[Part]] = {split: [] for split in SPLITS}
        depth: dict[str, int] = {}
        for part in sorted(found, key=lambda part: (part.name.count("/"), part.name)):
            match = re.fullmatch(pattern, part.name.rpartition("/")[2])
            if match and _is_own(part.name.removeprefix(f"{place}/")):
                split = "valid" if match[1] == "validation" else match[1]
                level = depth.setdefault(split, part.name.count("/"))
                if level == part.name.count("/"):
                    splits[split].append(part)
        if any(splits.values()):
            return _of_splits(place, form, splits)
    return None


def _of_splits(place: str, form: str, parts: Mapping[str, Sequence[Part]]) -> Source:
    missing = [split for split in SPLITS if not parts[split]]
    if missing:
        there = ", ".join(split for split in SPLITS if parts[split])
        raise UserError(
            f"--data {place} ({form}) has no split {' and '.join(missing)}, only {there or 'none'}"
        )
    if empty := [part.name for split in SPLITS for part in parts[split] if not part.size]:
        raise UserError(f"{empty[0]} is empty: download it again")
    files = [(split, part) for split in SPLITS for part in parts[split]]
    splits = {split: _all_lines(parts[split]) for split in SPLITS}
    return Source(place=place, form=form, files=files, splits=splits)


def _all_lines(parts: Sequence[Part]) -> Lines:
    def lines(encoding: str, newline: str | None) -> Iterator[str]:
        for part in parts:
            yield from part.lines(encoding, newline)

    return lines


def _cut_file(path: Path, held_out: float) -> Source:
    if path.suffix in (".parquet", ".arrow"):
        raise UserError(f"--data {path} is a single table: give the folder with all splits")
    return cut(str(path), "one file", [of_file(path)], held_out)


def _shuffled(parts: Sequence[Stream], root: Path) -> list[Part]:
    """Order parts by digests of their names, so that held-out splits are a random mixture."""

    def key(part: Part) -> bytes:
        return hashlib.blake2b(part.name.removeprefix(str(root)).encode()).digest()

    return sorted(parts, key=key)


def _is_text(name: str) -> bool:
    return name.lower().endswith(TEXTS) and _is_own(name)


def _is_own(name: str) -> bool:
    """Return whether a file in an archive or folder is neither hidden nor added by macOS.

    Files in hidden folders are hidden, too. `name` is relative to the archive or folder.
    """
    parts = PurePosixPath(name).parts  # without the `.` of `./name`
    return "__MACOSX" not in name and not any(part.startswith(".") for part in parts)


def _expected() -> str:
    return (
        "expected are wiki.{train,valid,test}.tokens, {train,valid,test}.txt, "
        "train-*.parquet and similar files, or text files"
    )
