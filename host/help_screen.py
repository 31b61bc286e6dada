"""The text of `--help` and `--help-all` for a command whose options are a dataclass.

`--help` describes the common options and lists the others, grouped by the folder that uses them;
`--help-all` describes every option. tyro provides the options' names, types and texts; its own
screen has a fixed order and is several pages long.
"""

import argparse
import re
import shutil
import textwrap
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import tyro

SHORT = ("-h", "--help")
HELP_ALL = "--help-all"
_WIDEST = 100  # columns
_INDENT = 24  # columns before an option's description


@dataclass(frozen=True, kw_only=True)
class HelpLayout:
    """The options that `--help` describes, and the headings under which it lists the others.

    Options are given without dashes; `core_*` stands for every option with this prefix. Options in
    no group are added to the last group.
    """

    described: Sequence[str] = ()  # none: all
    groups: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"Options": ()})
    values: Mapping[str, Iterable[str]] = field(default_factory=dict)  # by option: allowed values
    # By option: the effective default, if the option's own default is None.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    marked: Collection[str] = ()  # options whose defaults are starred
    star: str = ""  # meaning of the star, for the heading


@dataclass(frozen=True)
class _Option:
    names: tuple[str, ...]  # as typed; none: an argument without a flag
    value: str  # placeholder; empty: a switch
    help: str
    default: str  # empty: none
    allowed: tuple[str, ...] = ()
    star: str = ""  # after the default; empty: none

    @property
    def name(self) -> str:
        return self.names[0].lstrip("-").replace("-", "_") if self.names else ""

    @property
    def usage(self) -> str:
        """Its usage; a switch that is on by default has two names."""
        names = self.names if self.is_on else self.names[:1]
        return f"{', '.join(names)} {self.value}".strip()

    @property
    def is_on(self) -> bool:
        return not self.value and self.default == "True"

    @property
    def brief(self) -> str:
        """Its name, values and default."""
        name = self.names[-1 if self.is_on else 0]
        value = f"{{{','.join(self.allowed)}}}" if self.allowed else self.value
        return " ".join(filter(None, (name, value, self._shown)))

    @property
    def described(self) -> str:
        names_all = all(one in self.help for one in self.allowed)
        allowed = "" if names_all else f"One of {', '.join(self.allowed)}."
        shown = f"[{self.names[0]}]{self.star}" if self.is_on else self._shown
        return " ".join(filter(None, (self.help, allowed, shown)))

    @property
    def _shown(self) -> str:
        return (f"[{self.default}]" if self.value and self.default else "") + self.star


def help_asked_for(arguments: Sequence[str]) -> str | None:
    """Return `--help-all` or `--help`, if either is among the arguments."""
    return next((word for word in (HELP_ALL, *SHORT) if word in arguments), None)


def help_text(kind: type, layout: HelpLayout, full: bool, **of_tyro: Any) -> str:
    """Return the text for options of the dataclass `kind`; `of_tyro` as for `tyro.cli`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        parser = tyro.extras.get_parser(kind, add_help=False, **of_tyro)
    options = [_option(action, layout) for action in parser._actions]
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    arguments = [option for option in options if not option.names]
    taken = "".join(f" {option.value}" for option in arguments)
    parts = [f"usage: {parser.prog}{taken} [OPTIONS]", _wrapped(parser.description or "", width)]
    parts += [_descriptions(arguments, width)] if arguments else []
    grouped = _grouped([option for option in options if option.names], layout)
    if full or not layout.described:
        parts += [f"{title}:\n{_descriptions(group, width)}" for title, group in grouped.items()]
        return "\n\n".join(parts)
    wanted = [option for name in layout.described for option in _named(name, options)]
    wanted = [replace(option, help=_first_sentence(option.help)) for option in wanted]
    star = f" ({layout.star})" if layout.marked else ""
    heading = f"Options, with defaults in brackets{star}:"
    parts.append(f"{_wrapped(heading, width)}\n{_descriptions(wanted, width)}")
    seen = {option.names for option in wanted}
    rest = {title: [o for o in group if o.names not in seen] for title, group in grouped.items()}
    named = [f"{title}:\n{_names(group, width)}" for title, group in rest.items() if group]
    parts.append("\n".join((f"More options; {HELP_ALL} describes them:", *named)))
    return "\n\n".join(parts)


def _option(action: argparse.Action, layout: HelpLayout) -> _Option:
    before, tag, default = " ".join((action.help or "").split()).rpartition("(default: ")
    text, default = (before, default[:-1]) if tag else (default, "")
    text = text.removesuffix("(required)").strip()
    name = action.option_strings[0].lstrip("-").replace("-", "_") if action.option_strings else ""
    value = (action.metavar or "").replace("{None}|", "")
    allowed = tuple(layout.values.get(name, ()))
    if default == "None":
        default = str(layout.defaults.get(name) or "")
    value = "NAME" if allowed else value
    star = "*" if name in layout.marked else ""
    return _Option(tuple(action.option_strings), value, text, default, allowed, star)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]


def _named(name: str, options: Sequence[_Option]) -> list[_Option]:
    prefix = name.removesuffix("*")
    return [o for o in options if o.name == name or (prefix != name and o.name.startswith(prefix))]


def _grouped(options: Sequence[_Option], layout: HelpLayout) -> dict[str, list[_Option]]:
    found = {
        title: [option for name in names for option in _named(name, options)]
        for title, names in layout.groups.items()
    }
    taken = [option for group in found.values() for option in group]
    found[[*layout.groups][-1]] += [option for option in options if option not in taken]
    return found


def _descriptions(options: Sequence[_Option], width: int) -> str:
    lines = []
    for option in options:
        begin = f"  {option.usage}"
        text = option.described
        if len(begin) > _INDENT - 2:
            lines.append(begin)
            begin = ""
        indents = {"initial_indent": begin.ljust(_INDENT), "subsequent_indent": " " * _INDENT}
        lines += textwrap.wrap(text, width, break_on_hyphens=False, **indents) or [begin]
    return "\n".join(lines)


def _names(options: Sequence[_Option], width: int) -> str:
    lines = [" "]
    for option in options:
        if len(lines[-1]) + len(option.brief) + 2 > width and lines[-1].strip():
            lines.append(" ")
        lines[-1] += f" {option.brief} "
    return "\n".join(line.rstrip() for line in lines)


def _wrapped(text: str, width: int) -> str:
    """Wrap paragraphs; indented paragraphs, such as examples, stay as they are."""
    paragraphs = re.split(r"\n *\n+", text.strip())
    fill = partial(textwrap.fill, width=width, break_on_hyphens=False)
    return "\n\n".join(part.rstrip() if "    " in part else fill(part) for part in paragraphs)
