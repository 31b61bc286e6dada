"""Measure how easy the pages are to read: `python docs/readability.py [PAGE...]`.

For each page: words, mean words a sentence, the Automated Readability Index and sentences of more
than 35 words. Code blocks, tables and headings are left out; inline code counts as one word.

    ARI = 4.71 letters / words + 0.5 words / sentences - 21.43

The index is about the years of school that a reader needs.
Source: Senter & Smith 1967, Automated Readability Index, AMRL-TR-6620.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 35  # words in a sentence
PATTERNS = ("*.md", "docs/*.md", "docs/how_to/*.md", "docs/design/*.md", "docs/results/*/README.md")
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
    per_sentence: float
    index: float
    long: tuple[str, ...]  # sentences of more than LONGEST words


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
    count = sum(map(len, words))
    letters = sum(len(re.sub(r"\W", "", word)) for one in words for word in one)
    if not count:
        return Reading(0, 0.0, 0.0, ())
    mean = count / len(found)
    index = 4.71 * letters / count + 0.5 * mean - 21.43
    long = tuple(one for one, own in zip(found, words, strict=True) if len(own) > LONGEST)
    return Reading(count, mean, index, long)


def pages() -> list[Path]:
    """Every page that a person reads."""
    return sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})


def main(arguments: list[str] | None = None) -> int:
    """Print a table, or JSON for a comparison; exit code 1 with --strict and a long sentence."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path, help="Markdown files (default: all)")
    parser.add_argument("--long", action="store_true", help="print the long sentences, too")
    parser.add_argument("--json", type=Path, help="file to write the figures into")
    parser.add_argument("--before", type=Path, help="figures of an earlier --json, to compare")
    parser.add_argument("--strict", action="store_true", help="fail if there is a long sentence")
    options = parser.parse_args(arguments)
    try:
        readings = {_name(path): read(path.read_text()) for path in options.pages or pages()}
        before = json.loads(options.before.read_text()) if options.before else {}
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    _print(readings, before, options.long)
    if options.json:
        figures = {
            name: {"words": one.words, "per_sentence": round(one.per_sentence, 1)}
            | {"index": round(one.index, 1), "long": len(one.long)}
            for name, one in readings.items()
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return int(options.strict and any(one.long for one in readings.values()))


def _print(readings: dict[str, Reading], before: dict[str, dict], with_long: bool) -> None:
    print("| page | words | words a sentence | ARI | over 35 words |\n|---|---:|---:|---:|---:|")
    for name, one in readings.items():
        old = before.get(name)
        new = (one.words, f"{one.per_sentence:.1f}", f"{one.index:.1f}", len(one.long))
        olds = (old["words"], old["per_sentence"], old["index"], old["long"]) if old else ()
        cells = [f"{o} → {n}" for o, n in zip(olds, new, strict=True)] if old else map(str, new)
        print(f"| {name} | {' | '.join(cells)} |")
        for sentence in one.long if with_long else ():
            print(f"  - {sentence}")


def _name(path: Path) -> str:
    full = path.resolve()
    return str(full.relative_to(ROOT)) if full.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
