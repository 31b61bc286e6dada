"""What a report says, once: blocks that become HTML or Markdown."""

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from urllib.parse import quote

from fastweights.evaluation.reports.svg import for_page
from fastweights.host.errors import one_line

FIGURES = "report_figures"  # the folder beside the Markdown
_PAGE = Path(__file__).with_name("page.html")


@dataclass(frozen=True)
class Heading:
    text: str

    @property
    def anchor(self) -> str:
        return quote(self.text.lower().replace(" ", "-"))

    def html(self) -> str:
        return f'<h2 id="{self.anchor}">{_escaped(self.text)}</h2>'

    def markdown(self) -> str:
        return f"## {self.text}"


@dataclass(frozen=True)
class Text:
    text: str

    def html(self) -> str:
        return f"<p>{_escaped(self.text)}</p>"

    def markdown(self) -> str:
        return _marked(self.text)


@dataclass(frozen=True)
class Table:
    """The first column names the rows."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def html(self) -> str:
        head = "".join(f'<th scope="col">{_escaped(cell)}</th>' for cell in self.head)
        rows = "".join(f"<tr>{self._row(row)}</tr>" for row in self.rows)
        caption = f"<caption>{_escaped(self.caption)}</caption>"
        table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return f'<div class="wide">{table}</div>'

    def _row(self, row: Sequence[str]) -> str:
        first, *others = (_escaped(cell) for cell in row)
        return f'<th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others)

    def markdown(self) -> str:
        rows = [self.head, ["---"] * len(self.head), *self.rows]
        lines = ("| " + " | ".join(map(_marked, row)) + " |" for row in rows)
        return f"{_marked(self.caption)}\n\n" + "\n".join(lines)


@dataclass(frozen=True)
class Figure:
    """`name` is an id and a file name; `alt` says in words what is to be seen."""

    name: str
    drawing: bytes  # SVG
    title: str
    alt: str

    def html(self) -> str:
        drawing = for_page(self.drawing, self.name, one_line(self.title), one_line(self.alt))
        caption = f"{_escaped(self.title)}. {_escaped(self.alt)}"
        return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"

    def markdown(self) -> str:
        return f"![{_marked(self.title)}]({FIGURES}/{self.name}.svg)\n\n{_marked(self.alt)}"


@dataclass(frozen=True)
class Links:
    """(words, path relative to the page) each."""

    links: Sequence[tuple[str, str]]

    def html(self) -> str:
        items = (
            f'<li><a href="{_address(path)}">{_escaped(words)}</a></li>'
            for words, path in self.links
        )
        return f"<ul>{''.join(items)}</ul>"

    def markdown(self) -> str:
        return "\n".join(f"- [{_marked(words)}]({_address(path)})" for words, path in self.links)


Block = Heading | Text | Table | Figure | Links


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """One page with everything in it: it loads nothing."""
    headings = (block for block in blocks if isinstance(block, Heading))
    contents = "".join(f'<a href="#{h.anchor}">{_escaped(h.text)}</a> ' for h in headings)
    body = "\n".join(block.html() for block in blocks)
    page = Template(_PAGE.read_text(encoding="utf-8"))
    return page.substitute(title=_escaped(title), contents=contents, body=body)


def to_markdown(title: str, blocks: Sequence[Block]) -> str:
    """The same; figures are files in the folder `FIGURES` beside it."""
    return "\n\n".join([f"# {_marked(title)}", *(block.markdown() for block in blocks)]) + "\n"


def _escaped(text: str) -> str:
    return html.escape(one_line(text))


def _address(path: str) -> str:
    return quote(os.fsencode(path))


def _marked(text: str) -> str:
    text = one_line(text)
    for sign in ("\\", "|", "*", "_", "`", "[", "<"):
        text = text.replace(sign, f"\\{sign}")
    return text
