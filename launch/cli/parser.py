"""Command-line parsers whose errors are one-line `UserError`s."""

import argparse
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from fastweights.host import (
    HELP_ALL,
    HelpLayout,
    UserError,
    check_given_once,
    did_you_mean,
    flag,
    flags,
    help_asked_for,
    help_text,
    in_one_line,
    list_fields,
    whole_number,
)

Options = TypeVar("Options")


class Parser(argparse.ArgumentParser):
    """A parser for scripts with a few options; `--help` shows the script's own docstring."""

    def __init__(self, description: str | None, prog: str | None = None) -> None:
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=prog, description=description, formatter_class=layout)
        # For consistency with the other commands.
        self.add_argument(HELP_ALL, action="help", help=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        """Raise a one-line `UserError` with the nearest known flag."""
        _, _, unknown = message.partition("unrecognized arguments: ")
        hint = did_you_mean(unknown.partition(" ")[0], self._option_string_actions)
        raise UserError(f"{message.removeprefix('argument ')}{hint} (see --help)")


def typed_options(
    kind: type[Options],
    arguments: Sequence[str] | None,
    layout: HelpLayout | None = None,
    **of_tyro: Any,
) -> Options:
    """Parse flags into options that are a dataclass.

    Args:
        kind: the dataclass.
        arguments: the arguments after the command's name; None: this process's.
        layout: layout of `--help`; by default, `--help` describes every option.
        of_tyro: further arguments of `tyro.cli`.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    check_given_once(list_fields(kind), words)
    if asked := help_asked_for(words):
        screen, full = layout or HelpLayout(), asked == HELP_ALL
        print(help_text(kind, screen, full, registry=_REGISTRY, **of_tyro), flush=True)
        raise SystemExit(0)
    with _one_line():
        return tyro.cli(kind, args=words, registry=_REGISTRY, **of_tyro)


def early_options(arguments: Sequence[str], **options: Mapping[str, Any]) -> argparse.Namespace:
    """Parse options that determine the others' defaults.

    `options`: arguments of `add_argument` for each name. An option that is not given is None. If a
    flag lacks its value, all are None, because `typed_options` has a better message.
    """
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name, about in options.items():
        spellings = dict.fromkeys((flag(name), f"--{name}"))
        early.add_argument(*spellings, **about)
    try:
        return early.parse_known_args(arguments)[0]
    except argparse.ArgumentError:
        return early.parse_args([])


def changed_fields(options: Any) -> list[str]:
    """Return the names of a dataclass's fields that differ from their defaults."""
    return [f.name for f in fields(options) if getattr(options, f.name) != f.default]


def check_unchanged(options: Any, by: str) -> None:
    """Raise `UserError` if a field differs from its default: it applies to the flag `by` only."""
    if given := changed_fields(options):
        raise UserError(f"{flags(given)} works only with {by}: add {by}, or leave it out")


def count(text: str) -> int:
    """Parse a whole number for `Parser.add_argument(type=count)`, as dataclasses' options do."""
    try:
        return whole_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


_REGISTRY = ConstructorRegistry()


@_REGISTRY.primitive_rule
def _numbers(type_info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Let tyro accept whole numbers such as `1e6`, and `none` for None."""
    is_union = get_origin(type_info.type) in (Union, UnionType)
    kinds = set(get_args(type_info.type)) if is_union else {type_info.type}
    or_none = " or None" if NoneType in kinds else ""
    if len(kinds - {NoneType}) > 1 or not kinds & {int, float}:
        return None
    (number,) = kinds - {NoneType}

    def parse(words: list[str]) -> float | None:
        if or_none and words[0].lower() == "none":
            return None
        if number is int:
            return whole_number(words[0])
        try:
            return float(words[0])
        except ValueError:
            raise ValueError(f"must be a number{or_none}, not {words[0]!r}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=number.__name__.upper(),
        instance_from_str=parse,
        is_instance=lambda value: type(value) in (*kinds, int),
        str_from_instance=lambda value: [str(value)],
    )


@_REGISTRY.primitive_rule
def _truth_values(type_info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Let tyro accept true and false as choices; plain switches are --x and --no-x."""
    if type_info.type is not bool:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="{true,false}",
        choices=("true", "false"),
        instance_from_str=lambda words: words[0] == "true",
        is_instance=lambda value: type(value) is bool,
        str_from_instance=lambda value: [str(value).lower()],
    )


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn tyro's multi-line error boxes into one-line errors."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            yield
    except SystemExit as end:
        if end.code != 2:
            raise
        raise UserError(f"{in_one_line(said.getvalue())} (see --help)") from None
    sys.stderr.write(said.getvalue())
