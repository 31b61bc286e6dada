"""Every page: links lead somewhere, notebooks match their sources, sentences are short."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from readability import LONGEST, main, pages, read, sentences  # noqa: E402

sys.path.pop(0)

PLACES = ("*.md", "docs/**/*.md", "kernels/**/*.md", "benchmarks/**/*.md")
PAGES = sorted({path for place in PLACES for path in ROOT.glob(place)})
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def slug(heading: str) -> str:
    """Return the anchor that GitHub and MyST make of a heading."""
    plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
    return plain.strip().replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for groups in LINK.findall(text):
        target, _, anchor = next(filter(None, groups)).partition("#")
        if target.startswith(("http:", "https:")):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{name(page)} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors(path), (
                f"{name(page)} links to {target}#{anchor}, which is no heading"
            )


def test_the_reference_has_every_core_and_recurrence():
    reference = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    shown = set(re.findall(r"^\.\. automodule:: fastweights\.([\w.]+)$", reference, re.MULTILINE))
    registry = (ROOT / "cores" / "registry.py").read_text()
    cores = set(re.findall(r"^from fastweights\.(cores\.\w+) import", registry, re.MULTILINE))
    references = {
        f"kernels.{path.parent.name}.reference" for path in ROOT.glob("kernels/*/reference.py")
    }
    assert len(cores) > 10 and len(references) > 10
    assert not (cores | references) - shown


@pytest.mark.parametrize("page", pages(), ids=name)
def test_no_sentence_is_longer_than_needed(page):
    assert not read(page.read_text()).long


@pytest.mark.parametrize("page", pages(), ids=name)
def test_prose_is_wrapped_at_100_columns(page):
    text = re.sub(r"^(```|\$\$).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    prose = (line for line in text.splitlines() if not line.startswith(("|", "!", "    ")))
    assert not [line for line in prose if len(line) > 100]


def test_long_sentences_and_only_sentences_are_counted():
    long = "One " + "word " * LONGEST + "more."
    page = f"# A heading\n\nShort `a b c`, e.g. this. {long}\n\n```\n{long}\n```\n\n| {long} |\n"
    assert sentences(page) == ["Short Code, e.g this.", long]
    assert read(page).long == (long,) and read(page).words == 4 + LONGEST + 2


def test_figures_of_before_the_rewriting_are_shown(capsys, tmp_path):
    assert main([str(ROOT / "README.md")]) == 0
    assert "| README.md | 1237 → " in capsys.readouterr().out
    assert main([str(tmp_path / "none.md")]) == 2
    assert main([str(ROOT / "README.md"), "--before", str(ROOT / "README.md")]) == 2
    assert main([str(ROOT / "README.md"), "--json", str(tmp_path / "none" / "a.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 3


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_its_source_with_outputs(source):
    notebook = json.loads(source.with_suffix(".ipynb").read_text())
    cells = re.split(r"^# %%(?: \[(markdown)\])?\n", source.read_text(), flags=re.MULTILINE)[1:]
    kinds, texts = cells[::2], cells[1::2]
    assert [cell["cell_type"] for cell in notebook["cells"]] == [
        "markdown" if kind else "code" for kind in kinds
    ]
    for kind, text, cell in zip(kinds, texts, notebook["cells"], strict=True):
        plain = re.sub(r"^# ?", "", text, flags=re.MULTILINE) if kind else text
        run = "python docs/run_notebooks.py runs the notebooks and keeps their outputs"
        assert "".join(cell["source"]).strip() == plain.strip(), run
        assert kind or cell["execution_count"], run


def test_a_notebook_holds_no_path_of_a_machine_and_no_error():
    for source in NOTEBOOKS:
        text = source.with_suffix(".ipynb").read_text()
        assert '"output_type": "error"' not in text and len(text) < 400_000
        assert not re.search(r"(?:^|[\s\"'(])/(?:home|root|tmp|work|usr)/", text)
