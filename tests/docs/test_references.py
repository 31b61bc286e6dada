"""The bibliography has every source of several authors that pages and code cite by year."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("*.md", "docs/**/*.md", "kernels/**/*.md")
CODE = ("agents", "cores", "envs", "evaluation", "experiments", "kernels", "tasks", "training")
CITED = re.compile(
    r"([A-ZÉ]\w+)(?:, [A-ZÉ]\w+)? (et al\.|(?:&|and) [A-ZÉ]\w+),? \(?((?:19|20)\d\d)\b"
)
PAGE = (ROOT / "docs" / "references.md").read_text()
ENTRIES = [line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| ")][1:]


def cited(text: str) -> set[tuple[str, str]]:
    """Return (first author, year) of each source with several authors."""
    joined = re.sub(r"\s*\n[\s#/]*", " ", text)
    return {(first, year) for first, _, year in CITED.findall(joined)}


def sources() -> list[Path]:
    pages = [path for place in PLACES for path in ROOT.glob(place)]
    return pages + [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]


def test_every_cited_source_has_an_entry():
    first_authors = {entry: entry.removeprefix("van ").split()[0] for entry in ENTRIES}
    known = {(first_authors[e], year) for e in ENTRIES for year in re.findall(r"\d{4}", e)}
    found = {one: path.name for path in sources() for one in cited(path.read_text())}
    assert len(found) > 40
    assert not {one: path for one, path in found.items() if one not in known}


def test_a_preprint_is_linked_by_its_number():
    links = re.findall(r"\[([\d.]+)\]\(https://arxiv.org/abs/([\d.]+)\)", PAGE)
    assert len(links) == PAGE.count("arxiv.org") > 30
    assert not [shown for shown, linked in links if shown != linked]


@pytest.mark.parametrize(
    "text",
    [
        "Irie et al. 2021",
        "Irie et al. (2021)",
        "Irie,\n    Schlag et al. 2021",
        "Irie and Schlag 2021",
    ],
)
def test_citations_are_found(text):
    assert cited(f"Source: {text}, appendix C.") == {("Irie", "2021")}
