"""Texts in all formats become the same numbers, which are cached, repaired and shared."""

import errno
import json
import multiprocessing
import shutil
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from small_texts import FORMS, TABLES, TEXT, plain

from fastweights.host import atomic_files
from fastweights.host.errors import UserError
from fastweights.tasks.language_model import corpus as module
from fastweights.tasks.language_model.corpus import Corpus, CutOptions, open_corpus
from fastweights.tasks.language_model.published import (
    PUBLISHED,
    Counts,
    counts_comparison,
    recognised,
)
from fastweights.tasks.language_model.python_docs import python_docs_source
from fastweights.tasks.language_model.source import SPLITS, find_source
from fastweights.tasks.language_model.vocabulary import Bytes, Words, vocabulary_from_plain

WORDS = {split: [line.split() for line in TEXT[split].split("\n")[:-1]] for split in SPLITS}


def read(path: Path, cache: Path, held_out: float = 0.05, **options) -> Corpus:
    return open_corpus(find_source(path, held_out), CutOptions(**options), cache)


def lines_of(found: Corpus, split: str) -> list[list[str]]:
    words = [found.vocabulary.types[token] for token in found.splits[split].ids]
    text = " ".join(words).replace("<eos>", "\n")
    return [line.split() for line in text.split("\n")[:-1]]


@pytest.mark.parametrize("form", [*FORMS, *TABLES])
def test_every_form_gives_the_same_words(form, tmp_path):
    if form in TABLES:
        pytest.importorskip("pyarrow")
    path = (FORMS | TABLES)[form](tmp_path / "text")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    found = read(path, tmp_path / "cache")
    known = set(found.vocabulary.types)
    for split in SPLITS:
        expected = [[w if w in known else "<unk>" for w in line] for line in WORDS[split]]
        assert lines_of(found, split) == expected
        assert found.splits[split].lines == len(WORDS[split])
        assert found.splits[split].ids.dtype == np.int32
    assert all(file.read_bytes() == content for file, content in before.items())


def test_the_vocabulary_is_the_published_one(tmp_path):
    """Order: `<eos>`, count, first occurrence. Capitals stay; WikiText-2's has all splits."""
    text = {"train": "b a b\n c The the \n", "valid": "z z z z\n", "test": "a\n"}
    of_train = read(plain(tmp_path / "a", "{}.txt", text), tmp_path / "cache", min_count=1)
    assert of_train.vocabulary.types == ["<eos>", "b", "a", "c", "The", "the", "<unk>"]
    of_all = read(plain(tmp_path / "wikitext-2", "{}.txt", text), tmp_path / "cache", min_count=1)
    assert of_all.vocabulary.types[:4] == ["<eos>", "z", "b", "a"]


def test_names_of_files_do_not_decide_the_vocabulary(tmp_path):
    text = {"train": "a b a\n", "valid": "z\n", "test": "a\n"}
    named, other = (
        read(plain(tmp_path / f"text{len(name)}", name, text), tmp_path / "cache", min_count=1)
        for name in ("wiki.{}.tokens", "{}.txt")
    )
    assert named.vocabulary.types == other.vocabulary.types
    assert "z" not in named.vocabulary.types
    assert (named.published_name, other.published_name) == ("WikiText-2", None)


def test_rare_words_of_raw_text_are_unknown(tmp_path):
    """As in WikiText, words below 3 occurrences are unknown; `<unk>` is sorted by its count."""
    text = {"train": "a a a b b b b c c d\n", "valid": "c b e\n", "test": "a\n"}
    found = read(plain(tmp_path / "wikitext-103-raw", "wiki.{}.raw", text), tmp_path / "cache")
    assert found.vocabulary.types == ["<eos>", "b", "a", "<unk>"]
    assert lines_of(found, "valid") == [["<unk>", "b", "<unk>"]]
    assert [found.splits[split].replaced for split in SPLITS] == [3, 2, 0]


def test_a_texts_own_unknown_words_are_not_counted_as_replaced(tmp_path):
    text = {"train": "a <unk> b\n", "valid": "<unk> z a\n", "test": "<unk> b\n"}
    found, of_bytes = (
        read(plain(tmp_path / "text", "{}.txt", text), tmp_path / "cache", vocabulary=kind)
        for kind in ("words", "bytes")
    )
    assert [found.splits[split].replaced for split in SPLITS] == [0, 1, 0]
    assert [of_bytes.splits[split].replaced for split in SPLITS] == [0, 0, 0]


def test_numbers_of_earlier_versions_are_made_again_under_their_digest(tmp_path):
    """They do not say how many words became `<unk>`; runs on them can still be resumed."""
    source = FORMS["tokens"](tmp_path / "text")
    before = read(source, tmp_path / "cache")
    path = tmp_path / "cache" / f"words-{before.digest}" / "meta.json"
    meta = json.loads(path.read_text())
    for split in SPLITS:
        del meta[split]["replaced"]
    path.write_text(json.dumps(meta))
    after = read(source, tmp_path / "cache")
    assert after.digest == before.digest
    assert after.splits["valid"].replaced == before.splits["valid"].replaced


def test_bytes_are_the_text(tmp_path):
    found = read(plain(tmp_path / "text", "{}.txt"), tmp_path / "cache", vocabulary="bytes")
    for split in SPLITS:
        part = found.splits[split]
        assert bytes(part.ids.astype(np.uint8)) == TEXT[split].encode()
        assert part.length == len(part.ids)
        assert part.words == sum(len(line) + 1 for line in WORDS[split])
        assert found.vocabulary.text(part.ids.tolist()) == TEXT[split]


def test_counts_are_compared_with_the_published_ones(tmp_path):
    found = read(FORMS["tokens"](tmp_path / "text"), tmp_path / "cache")
    assert found.published_name == "WikiText-2"
    lines, same = counts_comparison("WikiText-2", found.counts)
    assert not same
    assert f"found {found.counts.train:,}, expected 2,088,628: NOT as published" in lines[0]
    assert counts_comparison("WikiText-103", PUBLISHED["WikiText-103"])[1]
    held_out = Counts(1000, 217_646, 245_569, 10)
    assert recognised("/data/x", held_out) == "WikiText-2"
    assert recognised("/data/wikitext-103-v1", Counts(1, 1, 1, 1)) == "WikiText-103"
    assert recognised("/data/wikitext-2024", Counts(1, 1, 1, 1)) is None
    assert recognised("/wikitext-2/notes", Counts(1, 1, 1, 1)) is None


def test_shares_that_differ_a_little_are_different_texts(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(9000)))
    shares = (0.1231, 0.1234)
    one, other = (read(tmp_path / "a.txt", tmp_path / "cache", held_out=h) for h in shares)
    assert one.digest != other.digest
    assert one.counts.test < other.counts.test


def test_lone_surrogates_are_three_bytes(tmp_path):
    (tmp_path / "a.txt").write_text("one \\ud800 two\n" * 50)
    how = {"held_out": 0.1, "encoding": "unicode_escape"}
    words, pieces = (
        read(tmp_path / "a.txt", tmp_path / "cache", vocabulary=kind, **how)
        for kind in ("words", "bytes")
    )
    assert "\ud800" in words.vocabulary.types
    assert bytes(pieces.splits["train"].ids.astype(np.uint8)).startswith(b"one \xed\xa0\x80 two")


def test_a_text_without_splits_is_cut_at_its_end(tmp_path):
    text = "".join(f"line {n} of this text\n" for n in range(1000))
    (tmp_path / "a.txt").write_text(text)
    found = read(tmp_path / "a.txt", tmp_path / "cache", held_out=0.1, vocabulary="bytes")
    parts = [bytes(found.splits[split].ids.astype(np.uint8)).decode() for split in SPLITS]
    assert "".join(parts) == text
    assert all(part.endswith("\n") for part in parts)
    assert [len(part) / len(text) for part in parts] == pytest.approx([0.8, 0.1, 0.1], abs=0.002)
    assert "last 0.1 for test" in found.form


@pytest.mark.parametrize("space", [" ", ""])  # between words: the cuts are there, or anywhere
def test_a_long_line_is_cut_like_a_text(space, tmp_path):
    """text8, for example, is one line of 100 MB."""
    text = "short line\n" + "".join(f"mot{space}num\xe9ro {n} " for n in range(20_000))
    text = text if space else text.replace(" ", "")
    (tmp_path / "a.txt").write_text(text)
    found = read(tmp_path / "a.txt", tmp_path / "cache", held_out=0.1, vocabulary="bytes")
    parts = [bytes(found.splits[split].ids.astype(np.uint8)).decode() for split in SPLITS]
    assert "".join(parts) == text
    assert [len(part) / len(text) for part in parts] == pytest.approx([0.8, 0.1, 0.1], abs=0.002)
    assert not space or all(part.endswith(" ") for part in parts)


def test_a_folder_of_texts_is_one_text(tmp_path):
    (tmp_path / "text" / "deep").mkdir(parents=True)
    for number in range(20):
        (tmp_path / "text" / "deep" / f"{number}.md").write_text(f"word{number} " * 50 + "\n")
    (tmp_path / "text" / "picture.png").write_bytes(b"\x89PNG\xff")
    for name in ("notes.txt", ".venv", "deep/.cache"):  # folders
        (tmp_path / "text" / name).mkdir()
        (tmp_path / "text" / name / ".hidden.md").write_text("hidden\n")
    for name in (".venv", "deep/.cache"):
        (tmp_path / "text" / name / "code.py").write_text("hidden\n")
    found = read(tmp_path / "text", tmp_path / "cache", held_out=0.1, min_count=1)
    every = Counter(w for split in SPLITS for line in lines_of(found, split) for w in line)
    assert every.total() == 1000
    # The order of files is not that of their names.
    assert lines_of(found, "test") != [["word9"] * 50]


def test_other_encodings_are_read_when_named(tmp_path):
    (tmp_path / "a.txt").write_bytes("".join(f"caf\xe9 {n}\n" for n in range(99)).encode("latin-1"))
    with pytest.raises(UserError, match=r"a\.txt is not utf-8 after line 0 .*--encoding"):
        read(tmp_path / "a.txt", tmp_path / "cache")
    found = read(tmp_path / "a.txt", tmp_path / "cache", encoding="latin-1")
    assert "caf\xe9" in found.vocabulary.types
    for name in ("klingon", "rot13", "zlib"):
        with pytest.raises(ValueError, match=f"--encoding '{name}' is unknown"):
            CutOptions(encoding=name).check()
    with pytest.raises(ValueError, match="known: words, bytes"):
        CutOptions(vocabulary="letters").check()
    with pytest.raises(ValueError, match="--min-count must be at least 1"):
        CutOptions(min_count=0).check()


@pytest.mark.parametrize("vocabulary", ["words", "bytes"])
@pytest.mark.parametrize(
    ("encoding", "end"), [("utf-8", "\n"), ("utf-8", "\r\n"), ("utf-16", "\n"), ("latin-1", "\r\n")]
)
def test_shares_are_of_the_text_and_not_of_its_bytes(vocabulary, encoding, end, tmp_path):
    lines = [f"caf\xe9 au lait num\xe9ro {n % 7}{end}" for n in range(2_000)]
    (tmp_path / "a.txt").write_bytes("".join(lines).encode(encoding))
    path, cache = tmp_path / "a.txt", tmp_path / "cache"
    found = read(path, cache, encoding=encoding, vocabulary=vocabulary)
    total = sum(found.splits[split].lines for split in SPLITS)
    assert total == len(lines)
    for split in ("valid", "test"):
        assert found.splits[split].lines / total == pytest.approx(0.05, abs=0.001)


def _lacking(folder: Path) -> Path:
    (plain(folder, "wiki.{}.tokens") / "wiki.test.tokens").unlink()
    return folder


def _empty(folder: Path) -> Path:
    (plain(folder, "{}.txt") / "valid.txt").write_text("")
    return folder


def _cut_off(folder: Path) -> Path:
    archive = FORMS["zip"](folder)
    archive.write_bytes(archive.read_bytes()[:200])
    return archive


def _twice(folder: Path) -> Path:
    plain(folder / "wikitext-2", "{}.txt")
    return plain(folder / "wikitext-103", "{}.txt").parent


def _no_text(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"\0")
    return folder


BAD = {
    "missing": (lambda folder: folder / "nowhere", "no such file or folder"),
    "a split": (_lacking, "has no split test, only train, valid"),
    "empty": (_empty, r"valid\.txt is empty: download it again"),
    "cut off": (_cut_off, "is damaged|cannot read"),
    "two": (_twice, "several data sets: choose one of .*wikitext-103, .*wikitext-2"),
    "no text": (_no_text, "has no text in it; expected are wiki"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_text_is_one_line(case, tmp_path):
    make, said = BAD[case]
    with pytest.raises(UserError, match=said) as error:
        read(make(tmp_path / "text"), tmp_path / "cache")
    assert "\n" not in str(error.value)


def test_numbers_are_kept_by_content(tmp_path, monkeypatch):
    """Equal content in another place reuses the numbers; other content or options do not."""
    first = read(FORMS["tokens"](tmp_path / "a"), tmp_path / "cache")
    monkeypatch.setattr(module, "_make", lambda *_: pytest.fail("the numbers were made again"))
    again = read(FORMS["tokens"](tmp_path / "b"), tmp_path / "cache")
    assert again.digest == first.digest
    monkeypatch.undo()
    other = plain(tmp_path / "c", "wiki.{}.tokens", TEXT | {"test": "another one \n"})
    assert read(other, tmp_path / "cache").digest != first.digest
    assert read(tmp_path / "a", tmp_path / "cache", min_count=2).digest != first.digest
    assert len(list((tmp_path / "cache").iterdir())) == 3


@pytest.mark.parametrize("file", ["train.int32", "vocabulary.json", "meta.json"])
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
def test_damaged_numbers_are_made_again(file, damage, tmp_path):
    source = FORMS["tokens"](tmp_path / "text")
    before = read(source, tmp_path / "cache")
    numbers, types = list(before.splits["train"].ids), list(before.vocabulary.types)
    path = tmp_path / "cache" / f"words-{before.digest}" / file
    content = path.read_bytes()
    path.unlink()
    if damage != "gone":
        flipped = bytes([content[0] ^ 1]) + content[1:]
        path.write_bytes(content[:-1] if damage == "cut" else flipped)
    after = read(source, tmp_path / "cache")
    assert list(after.splits["train"].ids) == numbers
    assert after.vocabulary.types == types


def test_a_full_disk_is_one_line_and_leaves_nothing_half(tmp_path, monkeypatch):
    source = FORMS["tokens"](tmp_path / "text")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(atomic_files.os, "fsync", full)
        with pytest.raises(UserError, match=r"No space left on device.*another --cache"):
            read(source, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.int32"))
    assert not list((tmp_path / "cache").rglob("*meta.json"))
    assert len(read(source, tmp_path / "cache").splits["valid"].ids) == 9


def _read_in_process(path: Path, cache: Path, results) -> None:
    made = []
    make = module._make
    module._make = lambda *arguments: (made.append(1), make(*arguments))
    found = read(path, cache)
    results.put((len(made), [int(n) for n in found.splits["train"].ids]))


def test_of_two_processes_one_makes_the_numbers(tmp_path):
    source = FORMS["tokens"](tmp_path / "text")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    arguments = (source, tmp_path / "cache", results)
    both = [context.Process(target=_read_in_process, args=arguments) for _ in range(2)]
    for process in both:
        process.start()
    found = [results.get(timeout=60) for _ in both]
    for process in both:
        process.join()
    assert sorted(made for made, _ in found) == [0, 1]
    assert found[0][1] == found[1][1]


def test_a_vocabulary_survives_json():
    words = Words(["<eos>", "a", "b"])
    assert vocabulary_from_plain(words.plain()).types == words.types
    assert vocabulary_from_plain(Bytes().plain()).size == 256
    for broken in ({}, {"kind": "words"}, {"kind": "words", "types": ["a", "<eos>"]}):
        with pytest.raises(ValueError, match="vocabulary"):
            vocabulary_from_plain(broken)


def test_prompts_and_readers():
    words = Words(["<eos>", "a", "b", "<unk>"])
    assert words.prompt("a b\n b z") == [1, 2, 0, 2, 3]
    assert words.text([1, 2, 0, 2]) == "a b\nb"
    assert list(Bytes().pieces("é".encode())) == ["", "é"]


def test_python_may_lie_in_a_folder_of_any_name(tmp_path):
    library = Path(sysconfig.get_paths()["stdlib"]) / "json"
    here = shutil.copytree(library, tmp_path / "tests" / "json")
    assert python_docs_source(library=here).size == python_docs_source(library=library).size


def test_every_machine_has_a_text():
    source = python_docs_source(library=Path(sysconfig.get_paths()["stdlib"]) / "json")
    text = {split: "".join(source.splits[split]("utf-8", "\n")) for split in SPLITS}
    assert len("".join(text.values()).encode()) == source.size > 400_000
    assert "JSON" in "".join(text.values())
    assert [len(text[split]) / source.size for split in SPLITS] == pytest.approx(
        [0.9, 0.05, 0.05], abs=0.01
    )
