"""Measure how easy the pages are to read: `python docs/readability.py [PAGE...]`.

For each page: words, mean words a sentence, the Automated Readability Index and sentences of more
than 35 words. Code blocks, tables and headings are left out; inline code counts as one word.
docs/readability_before.json has the same figures of the pages before they were rewritten (revision
fb52cea); pages that are older than the rewriting show both.

    ARI = 4.71 letters / words + 0.5 words / sentences - 21.43

The index is about the years of school that a reader needs.
Source: Senter & Smith 1967, Automated Readability Index, AMRL-TR-6620.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 35  # words in a sentence
BEFORE = ROOT / "docs" / "readability_before.json"
PATTERNS = (
    "*.md",
    "docs/*.md",
    "docs/*/*.md",
    "docs/results/*/README.md",
    "kernels/*/*.md",
    "benchmarks/peers/*/*.md",
)
NOT_PROSE = re.compile(
    r"^(```|~~~).*?^\1|^---\n.*?^---\n|^\$\$.*?^\$\$|^ {4,}\S.*?$|^\|.*?$|^#.*?$|^<.*?>$",
    re.MULTILINE | re.DOTALL,
)
ABBREVIATIONS = re.compile(r"\b(et al|e\.g|i\.e|vs|eqs?|Fig|No|cf)\.")
SENTENCE_END = re.compile(
    r"(?<=[.!?])[)*\"]*\s+(?=[\"(*\[]*[A-Z0-9])|\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )"
)


class Reading(NamedTuple):
    """What was counted on a page."""

    words: int
    sentences: int
    letters: int
    long: tuple[str, ...]  # sentences of more than LONGEST words

    @property
    def figures(self) -> dict[str, float]:
        """Words, words a sentence, the index, and the number of long sentences."""
        words, count = max(1, self.words), max(1, self.sentences)
        mean = self.words / count
        index = 4.71 * self.letters / words + 0.5 * mean - 21.43 if self.words else 0.0
        rounded = {"per_sentence": round(mean, 1), "index": round(index, 1)}
        return {"words": self.words} | rounded | {"long": len(self.long)}


def sentences(page: str) -> list[str]:
    """The sentences of a Markdown page, without code blocks, tables and headings."""
    text = NOT_PROSE.sub("\n\n", page)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "Code", text)
    text = re.sub(r"<[^>]+>", "", text)
    text = ABBREVIATIONS.sub(r"\1", text)
    found = (re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", one) for one in SENTENCE_END.split(text))
    return [" ".join(one.split()) for one in found if re.search(r"[A-Za-z]{2}", one)]


def read(page: str) -> Reading:
    """Count a Markdown page."""
    found = sentences(page)
    words = [[w for w in one.split() if re.search(r"\w", w)] for one in found]
    letters = sum(len(re.sub(r"\W", "", word)) for one in words for word in one)
    long = tuple(one for one, own in zip(found, words, strict=True) if len(own) > LONGEST)
    return Reading(sum(map(len, words)), len(found), letters, long)


def together(readings: Iterable[Reading]) -> Reading:
    """Count several pages as one."""
    every = list(readings)
    long = tuple(sentence for one in every for sentence in one.long)
    sums = (sum(one[place] for one in every) for place in range(3))
    return Reading(*sums, long)


def pages() -> list[Path]:
    """Every page that a person reads."""
    return sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})


def main(arguments: list[str] | None = None) -> int:
    """Print a table; exit code 1 with --strict and a long sentence, 2 where a file is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path, help="Markdown files (default: all)")
    parser.add_argument("--long", action="store_true", help="print the long sentences, too")
    parser.add_argument("--json", type=Path, help="file to write the figures into")
    parser.add_argument(
        "--before", type=Path, default=BEFORE, help="earlier --json to compare with"
    )
    parser.add_argument("--strict", action="store_true", help="fail if there is a long sentence")
    options = parser.parse_args(arguments)
    try:
        readings = {_name(path): read(path.read_text()) for path in options.pages or pages()}
        before = json.loads(options.before.read_text())
        figures = {name: one.figures for name, one in readings.items()}
        figures["all of these"] = together(readings.values()).figures
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1) + "\n")
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:  # not UTF-8, or not JSON
        print(f"error: unreadable: {error}", file=sys.stderr)
        return 2
    if options.pages:
        before.pop("all of these", None)  # it is of all pages
    _print(figures, before)
    for name, one in readings.items() if options.long else ():
        for sentence in one.long:
            print(f"\n{name}: {sentence}")
    return int(options.strict and any(one.long for one in readings.values()))


def _print(figures: dict[str, dict], before: dict[str, dict]) -> None:
    print("| page | words | words a sentence | ARI | over 35 words |\n|---|---:|---:|---:|---:|")
    for name, new in figures.items():
        old = before.get(name, {})
        cells = [f"{old[one]} → {new[one]}" if old else str(new[one]) for one in new]
        print(f"| {name} | {' | '.join(cells)} |")


def _name(path: Path) -> str:
    full = path.resolve()
    return str(full.relative_to(ROOT)) if full.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
