"""The README: folder descriptions equal the folders' docstrings; links and commands exist.

Every package has a docstring.
"""

import ast
import re
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()
ROOMS = sorted(path.name for path in (ROOT / "fastweights").iterdir() if path.is_symlink())
PACKAGES = sorted(
    path for room in ("fastweights", *ROOMS) for path in (ROOT / room).rglob("__init__.py")
)
TREE = dict(re.findall(r"^(\w+)/ +(.+)$", PAGE.partition("## The tree")[2], re.MULTILINE))


@pytest.mark.parametrize("room", ROOMS)
def test_the_tree_says_what_the_folder_says(room):
    purpose = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text()))
    first = re.split(r"\.(?: |$)", purpose.splitlines()[0])[0]
    assert TREE[room].casefold() == first.casefold()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_every_package_says_what_it_is(package):
    assert ast.get_docstring(ast.parse(package.read_text())), f"{package} has no docstring"


def test_links_lead_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", PAGE) + re.findall(r'src="([^"]+)"', PAGE)
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / link).exists()]


def test_it_is_short_with_its_code_and_tables():
    assert len(PAGE.split()) < 900


def test_its_first_picture_moves():
    """One more shows learning."""
    film, curve = re.findall(r"!\[[^]]*\]\(([^)]+)\)", PAGE)
    assert (ROOT / curve).name == "learning_curve.png"
    path = ROOT / film
    with Image.open(path) as picture:
        assert picture.n_frames > 50 and path.stat().st_size < 1_000_000


def test_the_library_in_ten_lines_runs():
    (lines,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(compile(lines, "README.md", "exec"), names)
    assert names["y"].shape == (50, 8, names["core"].output_size)
    assert all(weight.grad is not None for weight in names["core"].parameters())


def test_commands_exist():
    commands = set(re.findall(r"launch/(\w+)\.py", PAGE))
    assert "atari" in commands
    assert not [name for name in commands if not (ROOT / "launch" / f"{name}.py").exists()]
