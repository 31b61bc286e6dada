"""Imports between rooms point down only, and all code has one import name."""

import ast
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
AGENTS = {"agents", "cores", "kernels", "envs", "records"}
# Each room, and the rooms that it may import besides host, which all may import.
ALLOWED = {
    "host": set(),
    "records": {"checkpoint_folder", "checkpoints", "exports"},  # load torch
    "envs": set(),
    "kernels": set(),
    "cores": {"kernels"},
    "agents": {"cores", "kernels"},
    "tasks": {"cores", "kernels"},
    "training": AGENTS,
    "evaluation": AGENTS | {"training"},
    "experiments": AGENTS | {"training", "evaluation", "tasks"},
    "launch": AGENTS | {"training", "evaluation", "tasks", "experiments"},
}
NAME = "fastweights"
# Folders that only their room imports; the room exports what others need from them.
INSIDE = ("kernels.machinery", "kernels.include", "kernels.cuda", "training.ray")
FILES = [path for room in ALLOWED for path in sorted((ROOT / room).rglob("*.py"))]
OTHERS = [path for room in ("tests", "benchmarks") for path in sorted((ROOT / room).rglob("*.py"))]


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join((NAME, *(parts[:-1] if parts[-1] == "__init__" else parts)))


MODULES = {module(path) for path in FILES}


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:  # the name may be a module
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in MODULES else node.module


def own_imports(path: Path) -> set[str]:
    return {imported for imported in imports(path) if imported.split(".")[0] == NAME}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def offenders(files: Iterable[Path], offences: Callable[[Path], Iterable[str]]) -> dict[str, list]:
    """Return what is wrong with each file that is not as it should be."""
    found = {name(path): sorted(offences(path)) for path in files}
    return {path: wrong for path, wrong in found.items() if wrong}


def test_every_room_is_in_the_table_and_in_the_package():
    """A room is a folder at the root to which the package links."""
    linked = {path.name for path in (ROOT / NAME).iterdir() if path.is_symlink()}
    assert linked == set(ALLOWED)


def test_imports_point_down():
    def above(path: Path) -> set[str]:
        room = path.relative_to(ROOT).parts[0]
        rooms = {imported.split(".")[1] for imported in own_imports(path) if imported != NAME}
        return rooms - (ALLOWED[room] | {room, "host"})

    assert offenders(FILES, above) == {}


def test_there_is_one_import_name():
    """`from cores import CORES` and `from fastweights.cores import CORES` would load it twice."""

    def bare(path: Path) -> set[str]:
        return {imported for imported in imports(path) if imported.split(".")[0] in ALLOWED}

    assert offenders([*FILES, *OTHERS], bare) == {}


def test_environments_know_no_torch():
    def of_torch(path: Path) -> set[str]:
        return {imported for imported in imports(path) if imported.split(".")[0] == "torch"}

    assert offenders(sorted((ROOT / "envs").rglob("*.py")), of_torch) == {}


def test_no_room_is_entered_around_its_front():
    """Other rooms import names without underscore from folders: their `__init__` is the front."""

    def around(path: Path) -> Iterator[str]:
        room = path.relative_to(ROOT).parts[0]
        for node in nodes(path):
            if not (isinstance(node, ast.ImportFrom) and node.module.startswith(f"{NAME}.")):
                continue
            front = node.module.removeprefix(f"{NAME}.")
            if front.split(".")[0] == room:
                continue
            if not (ROOT / front.replace(".", "/")).is_dir():
                yield f"{front} is a file of its room"
            if f"{front}.".startswith(tuple(f"{inside}." for inside in INSIDE)):
                yield f"{front} is for its room alone"
            for alias in node.names:
                if alias.name.startswith("_") or f"{node.module}.{alias.name}" in MODULES:
                    yield f"{front}.{alias.name} is a file, or of its room alone"

    assert offenders(FILES, around) == {}


STUBS = [path for room in ALLOWED for path in sorted((ROOT / room).rglob("*.pyi"))]


@pytest.mark.parametrize("stub", STUBS, ids=name)
def test_a_front_exports_what_its_stub_lists(stub: Path):
    """Each name is there, and is no file's name, which would hide it once the file is loaded."""
    front = ".".join((NAME, *stub.parent.relative_to(ROOT).parts))
    exported = importlib.import_module(front).__all__
    listed = [alias.name for node in ast.parse(stub.read_text()).body for alias in node.names]
    assert sorted(exported) == sorted(listed) and len(set(listed)) == len(listed)
    for one in exported:
        assert f"{front}.{one}" not in MODULES
        getattr(importlib.import_module(front), one)


def test_no_circles_within_a_room():
    graph = {module(path): own_imports(path) for path in FILES}

    def reaches(start: str, goal: str, seen: set[str]) -> bool:
        for following in graph.get(start, ()):
            if following == goal:
                return True
            if following not in seen:
                seen.add(following)
                if reaches(following, goal, seen):
                    return True
        return False

    assert not [start for start in graph if reaches(start, start, {start})]


def test_no_script_shadows_a_module():
    """`python launch/x.py` puts launch/ first on the path; a `launch/signal.py` would break it."""
    taken = sys.stdlib_module_names | set(packages_distributions())
    assert not {path.stem for path in (ROOT / "launch").glob("*.py")} & taken - {"__init__"}


SOURCES = {".py", ".cpp", ".h", ".cu", ".cuh", ".html"}


def test_files_stay_readable():
    places = (ROOT / place for place in (*ALLOWED, NAME, "tests", "benchmarks"))
    files = [path for place in places for path in place.rglob("*") if path.suffix in SOURCES]
    assert not {name(path) for path in files if len(path.read_text().splitlines()) > 400}


def test_launch_holds_commands_alone():
    lines = (len(path.read_text().splitlines()) for path in (ROOT / "launch").rglob("*.py"))
    assert sum(lines) < 2_000


def test_functions_stay_readable():
    def long(path: Path) -> set[str]:
        functions = (
            n for n in nodes(path) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        )
        return {f.name for f in functions if f.end_lineno - f.lineno + 1 > 60}

    assert offenders(FILES, long) == {}
