"""Warn about public names without a docstring, which `python docs/build.py` makes an error."""

import dataclasses
import inspect
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

KINDS = {"module", "class", "exception", "function", "method"}


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
        logging.getLogger(__name__).warning("%s has no docstring: write one", name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at every docstring that autodoc reads."""
    app.connect("autodoc-process-docstring", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
