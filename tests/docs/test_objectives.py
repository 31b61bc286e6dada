"""The page about objectives: its table has what the presets set."""

import re
from pathlib import Path

import pytest

from fastweights.agents.learner_config import READ_BY
from fastweights.training import RunOptions
from fastweights.training.presets import PRESETS

PAGE = (Path(__file__).parents[2] / "docs" / "objectives.md").read_text()
SECTION = PAGE.partition("The presets' main options")[2]
HEAD, _, *ROWS = (
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in re.search(r"(?:^\|.*\n)+", SECTION, re.MULTILINE)[0].splitlines()
)
SHOWN = [name.strip("`") for name in HEAD[1:]]


def shown(options: RunOptions, name: str) -> str:
    """Return an option as the table shows it."""
    readers = READ_BY["objective"]
    is_read_by_some = any(name in names for names in readers.values())
    if is_read_by_some and name not in readers[options.learner.objective]:
        return "-"
    value = getattr(options if hasattr(options, name) else options.learner, name)
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return "yes" if value else "-"
    return f"{value:,}".removesuffix(".0")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_table_has_what_the_presets_set(row):
    names = [flag.replace("-", "_") for flag in re.findall(r"--([a-z-]+)", row[0])]
    found = [" x ".join(shown(PRESETS[preset]("rdn"), name) for name in names) for preset in SHOWN]
    assert names and found == row[1:]


@pytest.mark.parametrize("preset", ["published", "plain"])
def test_other_presets_have_the_values_of_paper(preset):
    names = re.findall(r"--([a-z-]+)", " ".join(row[0] for row in ROWS))
    options, paper = PRESETS[preset]("rdn"), PRESETS["paper"]("rdn")
    assert set(SHOWN) | {"published", "plain"} == set(PRESETS) and len(names) > 10
    for name in (name.replace("-", "_") for name in names):
        assert shown(options, name) == shown(paper, name)
