"""The content of a report: blocks that become HTML or Markdown."""

import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from fastweights.evaluation.markdown import markdown_table
from fastweights.evaluation.reports.svg import for_page
from fastweights.host import one_line, write_bytes

FIGURES = "report_figures"  # the folder beside the Markdown file
_SHORT = 12  # maximum number of rows of a two-column table that is not split
_PAGE = Path(__file__).with_name("page.html")


@dataclass(frozen=True)
class Heading:
    """A heading."""

    text: str
    kind: ClassVar[str] = "heading"

    @property
    def anchor(self) -> str:
        """The heading's id in a URL."""
        return quote(self.text.lower().replace(" ", "-"))

    def markdown(self) -> str:
        return f"## {self.text}"


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: ClassVar[str] = "text"

    def markdown(self) -> str:
        return _marked(self.text)


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: ClassVar[str] = "table"

    @classmethod
    def of_records(cls, caption: str, records: Sequence[Mapping[str, str]]) -> "Table":
        """Return a table of `records`, at least one, all with the same columns."""
        return cls(caption, list(records[0]), [list(record.values()) for record in records])

    @property
    def is_long(self) -> bool:
        """Whether the page sets the table in several columns, like a list."""
        return len(self.head) == 2 and len(self.rows) > _SHORT

    def markdown(self) -> str:
        head, *rows = ([_marked(cell) for cell in row] for row in (self.head, *self.rows))
        return f"{_marked(self.caption)}\n\n{markdown_table(head, rows)}"


@dataclass(frozen=True)
class Figure:
    """A figure; `name` is its id and file name, `alt` describes its content in words."""

    name: str
    drawing: bytes  # SVG
    title: str
    alt: str
    kind: ClassVar[str] = "figure"

    def for_page(self) -> str:
        """Return the drawing as part of an HTML page."""
        return for_page(self.drawing, self.name, one_line(self.title), one_line(self.alt))

    def markdown(self) -> str:
        return f"![{_marked(self.title)}]({FIGURES}/{self.name}.svg)\n\n{_marked(self.alt)}"


@dataclass(frozen=True)
class Links:
    """A list of links: (text, path relative to the page)."""

    links: Sequence[tuple[str, str]]
    kind: ClassVar[str] = "links"

    def markdown(self) -> str:
        return "\n".join(f"- [{_marked(words)}]({_address(path)})" for words, path in self.links)


Block = Heading | Text | Table | Figure | Links


def write_report(title: str, blocks: Sequence[Block], folder: Path) -> list[Path]:
    """Write report.html, report.md and its figures; return the two pages.

    Figures of an earlier report in `folder` that are not drawn again are removed.
    """
    (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    drawings = {block.name: block.drawing for block in blocks if isinstance(block, Figure)}
    for name, drawing in drawings.items():
        write_bytes(folder / FIGURES / f"{name}.svg", drawing + _signature(name))
    markdown, html = folder / "report.md", folder / "report.html"
    write_bytes(markdown, to_markdown(title, blocks).encode())
    write_bytes(html, to_html(title, blocks).encode())
    _remove_others(folder / FIGURES, drawings)
    return [html, markdown]


def _signature(name: str) -> bytes:
    """Return the last line of a figure file, which distinguishes it from users' files."""
    return f"<!-- {name}, drawn by a fastweights report -->\n".encode()


def _remove_others(folder: Path, drawn: Collection[str]) -> None:
    """Remove a report's figures, recognised by last line and name, that are not in `drawn`."""
    for path in folder.glob("*.svg"):
        with contextlib.suppress(OSError):  # such as a folder, or an unreadable file
            if path.stem not in drawn and path.read_bytes().endswith(_signature(path.stem)):
                path.unlink()


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """Return one self-contained page."""
    from jinja2 import Environment  # the import takes some milliseconds

    environment = Environment(
        autoescape=True,
        finalize=_on_one_line,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["address"] = _address
    page = environment.from_string(_PAGE.read_text(encoding="utf-8"))
    return page.render(title=title, blocks=blocks)


def to_markdown(title: str, blocks: Sequence[Block]) -> str:
    """Return the report in Markdown; figures are files in the folder `FIGURES` beside it."""
    return "\n\n".join([f"# {_marked(title)}", *(block.markdown() for block in blocks)]) + "\n"


def _on_one_line(value: Any) -> Any:
    """Return a value as printed on the page; a drawing is unchanged."""
    return one_line(value) if type(value) is str else value


def _address(path: str) -> str:
    return quote(os.fsencode(path))


def _marked(text: str) -> str:
    text = one_line(text)
    for sign in ("\\", "|", "*", "_", "`", "[", "<"):
        text = text.replace(sign, f"\\{sign}")
    return text
