"""Docstrings are Markdown and Google's sections; autodoc and napoleon read reStructuredText."""

import re
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"`([^`]+)`")
SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Example|Examples):$")
BEFORE_NAPOLEON = 400


def as_rst(lines: list[str]) -> list[str]:
    """Translate the Markdown of one docstring: code, special characters, indented blocks."""
    found, in_section, in_block = [], False, False
    for number, line in enumerate(lines):
        if SECTION.match(line):
            in_section = True
        elif line and not line.startswith(" "):
            in_section = in_block = False
        begins = line.startswith("    ") and not in_section and not in_block
        if begins and (number == 0 or not lines[number - 1].strip()):
            in_block = True
            found += ["::", ""]
        found.append(line if in_block or SECTION.match(line) else _inline(line))
    return found


def _inline(line: str) -> str:
    """Code as reStructuredText writes it; what has a meaning there only, escaped."""
    parts = CODE.split(line)  # text, code, text, code, ..., text
    text = [re.sub(r"([*|\\]|_(?=\W|$))", r"\\\1", part) for part in parts[::2]]
    code = [f"``{part}``" for part in parts[1::2]]
    joined = [text[0]]
    for literal, after in zip(code, text[1:], strict=True):
        joined += [literal, f"\\{after}" if after[:1].isalnum() else after]
    return "".join(joined)


def _process(app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Translate every docstring before napoleon takes its sections apart."""
    app.connect("autodoc-process-docstring", _process, priority=BEFORE_NAPOLEON)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
