"""The rooms' arrows point one way: envs <- launch, kernels <- cores <- agents <- launch, ..."""

import ast
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "envs": {"envs"},
    "kernels": {"kernels"},
    "cores": {"cores", "kernels"},
    "agents": {"agents", "cores", "kernels"},
    "tasks": {"tasks", "cores", "kernels"},
    "launch": {"launch", "tasks", "agents", "cores", "kernels", "envs"},
}
FILES = [path for room in ALLOWED for path in sorted((ROOT / room).rglob("*.py"))]


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path) for path in FILES}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for (
                alias
            ) in node.names:  # `from fastweights.kernels.lstm import reference` imports a module
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in MODULES else node.module


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_arrow_points_the_wrong_way(path: Path):
    room = path.relative_to(ROOT).parts[0]
    wrong = {
        m for m in imports(path) if (top := m.split(".")[0]) in ALLOWED and top not in ALLOWED[room]
    }
    assert not wrong


@pytest.mark.parametrize("path", sorted((ROOT / "envs").rglob("*.py")), ids=name)
def test_environments_know_no_torch(path: Path):
    assert not {module for module in imports(path) if module.split(".")[0] == "torch"}


def test_no_circles_within_a_room():
    graph = {
        module(path): {m for m in imports(path) if m.split(".")[0] in ALLOWED} for path in FILES
    }

    def reaches(start: str, goal: str, seen: set[str]) -> bool:
        for following in graph.get(start, ()):
            if following == goal:
                return True
            if following not in seen and reaches(following, goal, seen | {following}):
                return True
        return False

    assert not [start for start in graph if reaches(start, start, {start})]


def test_no_script_shadows_a_module():
    """`python launch/x.py` puts launch/ first on the path: a `launch/signal.py` would break it."""
    taken = sys.stdlib_module_names | set(packages_distributions())
    assert not {path.stem for path in (ROOT / "launch").glob("*.py")} & taken - {"__init__"}


SOURCES = {".py", ".cpp", ".h", ".cu", ".cuh", ".html"}


def test_files_stay_readable():
    places = (ROOT / place for place in (*ALLOWED, "tests", "benchmarks"))
    files = [path for place in places for path in place.rglob("*") if path.suffix in SOURCES]
    assert not {name(path) for path in files if len(path.read_text().splitlines()) > 400}
