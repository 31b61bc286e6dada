"""docs/tasks.md, "A language of your own": the example works in a copy of the checkout."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tasks.formal_languages.test_formal_languages import opinion_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tasks.md").read_text()
SECTION = PAGE.partition("### A language of your own\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
LANGUAGE, IMPORT, OPINION = (block for kind, block in BLOCKS if kind == "python")
COMMANDS = [line for kind, block in BLOCKS if not kind for line in block.splitlines()]
HERE = Path("tasks") / "formal_languages"
BRIEFLY = ("--sizes", "2", "8", "--train-size", "64", "--valid-size", "8", "--test-size", "8")
BRIEFLY += ("--epochs", "1", "--test-lengths", "8", "--num-threads", "1")


def add_after(path: Path, line: str, lines: str) -> None:
    text = path.read_text()
    assert text.count(line) == 1
    path.write_text(text.replace(line, line + lines))


def write_language(root: Path) -> None:
    (path,) = re.findall(r"`(tasks/formal_languages/\w+/\w+\.py)`", SECTION)
    (root / path).write_text(LANGUAGE)


def register(root: Path) -> None:
    path = root / HERE / "__init__.py"
    path.write_text(path.read_text().replace("\n_LANGUAGES", f"{IMPORT}\n_LANGUAGES"))
    (listed,) = re.findall(
        r"^_LANGUAGES = \(\n.*?(?=^\)\n)", path.read_text(), re.MULTILINE | re.DOTALL
    )
    add_after(path, listed, f"    {IMPORT.split()[-1]},\n")


def add_opinion(root: Path) -> None:
    path = root / "tests" / HERE / "second_opinions.py"
    (begin,) = re.findall(r"^OPINIONS: .* = \{\n", path.read_text(), re.MULTILINE)
    add_after(path, begin, OPINION)


@pytest.fixture
def checkout(tmp_path) -> Path:
    """Return a copy of the code and of the languages' tests."""
    rooms = [path.name for path in (ROOT / "fastweights").iterdir() if path.is_symlink()]
    ignore = shutil.ignore_patterns("__pycache__", Path(__file__).name)
    for folder in (*rooms, "fastweights", f"tests/{HERE}"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=ignore)
    for file in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def run(root: Path, command: str, *more: str) -> str:
    """Run a command of the page in a checkout and return all that it prints."""
    program, *words = shlex.split(command)
    start = [sys.executable, *(["-m", "pytest", "-p", "no:xdist"] if program == "pytest" else [])]
    env = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [*start, *words, *more], cwd=root, env=env, capture_output=True, text=True, timeout=300
    )
    return f"{done.stdout}{done.stderr}\nexit code {done.returncode}"


@pytest.mark.docs
def test_the_page_s_language_passes_the_tests_that_the_page_runs(checkout):
    write_language(checkout)
    said = run(checkout, COMMANDS[0])
    assert "lacks OnesModulo3 of ones_modulo_3.py: import it and add it to _LANGUAGES" in said
    register(checkout)
    add_opinion(checkout)
    said = run(checkout, COMMANDS[0])
    assert "exit code 0" in said and int(re.search(r"(\d+) passed", said)[1]) >= 8, said


def test_a_language_without_a_second_opinion_is_named():
    with pytest.raises(pytest.fail.Exception, match=r"second_opinions\.py lacks 'ones_modulo_3'"):
        opinion_of("ones_modulo_3")


@pytest.mark.docs
def test_its_commands_run(checkout):
    write_language(checkout)
    register(checkout)
    train, trace, _ = COMMANDS[1:]
    assert "exit code 0" in run(checkout, train, *BRIEFLY)
    said = run(checkout, trace)
    assert "exit code 0" in said and "between the machine's states" in said
    assert (checkout / "runs" / "ones" / "trace.png").is_file()


@pytest.mark.docs
def test_its_summary_runs(checkout):
    write_language(checkout)
    register(checkout)
    said = run(checkout, COMMANDS[3], "--epochs-at-most", "1", "--seeds", "1")
    assert "exit code 0" in said and "ones modulo 3" in said, said
