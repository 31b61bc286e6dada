"""Warn about public names without a docstring, which `python docs/build.py` makes an error.

Checked are the functions and classes of every module, and the methods that the reference shows.
"""

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

KINDS = {"module", "class", "exception", "function", "method"}


def undocumented(package: Path) -> Iterator[str]:
    """The public functions and classes of all modules of a package that have no docstring."""
    for folder in sorted(path for path in package.iterdir() if path.is_dir()):
        for path in sorted(folder.rglob("*.py")):
            names = path.relative_to(package).with_suffix("").parts
            module = ".".join((package.name, *names)).removesuffix(".__init__")
            for node in ast.parse(path.read_text()).body:
                is_public = not getattr(node, "name", "_").startswith("_")
                if is_public and not ast.get_docstring(node):
                    yield f"{module}.{node.name}"


def is_documented(thing: Any, lines: list[str]) -> bool:
    """Whether a person wrote the docstring: dataclasses and named tuples make one themselves."""
    text = "\n".join(lines).strip()
    if inspect.isclass(thing):
        made = dataclasses.is_dataclass(thing) or hasattr(thing, "_fields")
        return bool(text) and not (made and text.startswith(f"{thing.__name__}("))
    return bool(text)


def _check(app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    ours = str(getattr(thing, "__module__", name)).startswith("fastweights")
    if ours and kind in KINDS and not is_documented(thing, lines):
        _warn(name)


def _check_all(app: Sphinx) -> None:
    for name in undocumented(Path(app.srcdir) / "fastweights"):
        _warn(name)


def _warn(name: str) -> None:
    logging.getLogger(__name__).warning("%s has no docstring: write one", name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at every module, and at every docstring that autodoc reads."""
    app.connect("builder-inited", _check_all)
    app.connect("autodoc-process-docstring", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
