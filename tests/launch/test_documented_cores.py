"""The cores that docs/cores.md makes: its code, taken from the page, in a real run."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import logged, train

import cores
from cores import CORES
from launch.core_sizes import is_named_by_size
from launch.options import preset
from tests.cores import test_contract

PAGE = Path(__file__).parents[2] / "docs" / "cores.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
SOURCES_AND_LINES = zip(BLOCKS[::2], BLOCKS[1::2], strict=True)
EXAMPLES = dict(zip(("trace", "plain_delta_net"), SOURCES_AND_LINES, strict=True))


@pytest.fixture
def documented(request, monkeypatch) -> str:
    """The name of a core that stands in `CORES` as the page says."""
    source, line = EXAMPLES[request.param]
    names = vars(cores).copy()
    exec(compile(source, PAGE, "exec"), names)
    ((name, kind),) = eval(f"{{{line}}}", names).items()
    monkeypatch.setitem(CORES, name, kind)
    return name


every_example = pytest.mark.parametrize("documented", EXAMPLES, indirect=True)


def clauses() -> list[Callable[[str], None]]:
    """The tests that every memory has to pass, of those that ask for nothing but its name."""
    return [
        test
        for name, test in vars(test_contract).items()
        if name.startswith("test_") and _names(test) >= {"lstm", "delta_net", "lt, normalised"}
    ]


def _names(test: Callable) -> set[str]:
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    return set(marks[0].args[1]) if [mark.args[0] for mark in marks] == ["name"] else set()


@every_example
@pytest.mark.parametrize("clause", clauses(), ids=lambda clause: clause.__name__)
def test_it_keeps_the_contract(documented, clause):
    clause(documented)


@every_example
def test_presets_know_its_sizes(documented):
    assert not is_named_by_size(documented)
    assert preset("maze", documented).core_width == 32


@every_example
def test_it_trains_from_the_command_line(documented, tmp_path):
    maze = ("--env", "TMaze", "--core", documented, "--core-width", 16, "--total-steps", 40)
    assert train(tmp_path, "run", *maze) == 0
    assert logged(tmp_path / "run")["step"] == [20, 40]
