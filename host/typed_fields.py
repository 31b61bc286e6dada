"""Values from a file, checked against the field types of a dataclass or named tuple."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

_SHOWN = 60  # number of characters shown of a wrong value
_REFUSED = object()
Whole = TypeVar("Whole")


def typed_values(kind: type, plain: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return the values of `plain`, converted to the types of the fields of `kind`.

    Plain values (None, bool, int, float, str, list, dict) become paths and tuples if the field has
    such a type. The caller handles unknown names and missing fields. Messages prefix names with
    `where`.

    Raises:
        ValueError: a value of the wrong type; one line.
    """
    if not isinstance(plain, Mapping):
        raise ValueError(f"{where or 'the options'} must be names with values, not {_short(plain)}")
    hints = _hints(kind)
    return {
        name: _typed(value, hints[name], where + name)
        for name, value in plain.items()
        if name in hints
    }


def typed_whole(kind: type[Whole], plain: Mapping[str, Any], parts: Mapping[str, type]) -> Whole:
    """Return a `kind` from plain values; `parts` are its fields that are dataclasses.

    Raises:
        ValueError: a value of the wrong type, or a missing or unknown part; one line.
    """
    own = typed_values(kind, {name: value for name, value in plain.items() if name not in parts})
    try:
        nested = {
            name: part(**typed_values(part, plain[name], f"{name}."))
            for name, part in parts.items()
            if name in plain
        }
        return kind(**own | nested)
    except TypeError as error:
        raise ValueError(f"this version has no such options: {error}") from error


def list_fields(kind: type) -> set[str]:
    """Return the names of a dataclass's fields that are tuples, including those of nested ones.

    Annotated fields are left out: their flags may be repeated (`tyro.conf.UseAppendAction`).
    """
    found = set()
    for name, hint in get_type_hints(get_origin(kind) or kind, include_extras=True).items():
        nested = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if get_origin(hint) is tuple:
            found.add(name)
        elif is_dataclass(nested):
            found |= list_fields(nested)
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed(value: Any, hint: Any, name: str) -> Any:
    alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for alternative in alternatives:
        found = _as(alternative, value)
        if found is not _REFUSED:
            return found
    raise ValueError(f"{name} must be {_described(alternatives)}, not {_short(value)}")


def _as(kind: Any, value: Any) -> Any:
    """Return `value` as a `kind`, or `_REFUSED`."""
    if isinstance(value, np.generic):  # NumPy's numbers
        value = value.item()
    origin = get_origin(kind)
    if origin is Literal:
        same = (one for one in get_args(kind) if type(one) is type(value) and one == value)
        return next(same, _REFUSED)
    if origin is tuple:
        return _as_tuple(get_args(kind)[0], value)
    if kind is float:
        return _as_float(value)
    if kind is Path:
        return Path(value) if isinstance(value, str | Path) and "\0" not in str(value) else _REFUSED
    if kind is int:
        return value if type(value) is int and -(2**63) <= value < 2**63 else _REFUSED
    if kind in (NoneType, bool, str):
        return value if type(value) is kind else _REFUSED
    return value if kind is Any or isinstance(value, origin or kind) else _REFUSED


def _as_tuple(kind: Any, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return _REFUSED
    items = tuple(_as(kind, item) for item in value)
    return _REFUSED if any(item is _REFUSED for item in items) else items


def _as_float(value: Any) -> Any:
    if type(value) not in (int, float) or value != value:
        return _REFUSED
    try:
        return float(value)
    except OverflowError:  # an integer larger than any float
        return _REFUSED


def _described(alternatives: tuple[Any, ...]) -> str:
    words = {NoneType: "nothing", bool: "true or false", int: "a whole number", float: "a number"}
    words |= {str: "text", Path: "a path"}
    named = []
    for kind in alternatives:
        if get_origin(kind) is Literal:
            named += [repr(one) for one in get_args(kind)]
        elif get_origin(kind) is tuple:
            named.append(f"a list, each {_described(get_args(kind)[:1])}")
        else:
            named.append(words.get(kind, "names with values"))
    return " or ".join(named)


def _short(value: Any) -> str:
    """Return a short description of any plain value, however large or deep."""
    if type(value) is int and abs(value) >= 10**_SHOWN:
        return "a number of many digits"
    if isinstance(value, list | tuple | dict):
        return "a list" if not isinstance(value, dict) else "names with values"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
