"""docs/where.md: the files and names exist, and no answer needs more than three files."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "where.md").read_text()
ANSWERS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def definitions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if hasattr(node, "name")}


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_names_up_to_three_files_and_what_is_in_them(question):
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", ANSWERS[question])
    assert 1 <= len({path for path, _ in named}) <= 3
    for path, definition in named:
        assert definition in definitions(path), f"{path} has no {definition}"


def test_the_three_questions_are_there():
    assert len(ANSWERS) == 3
