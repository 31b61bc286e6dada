"""The arguments of an environment's constructor, as far as its signature reveals them."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from fastweights.envs.pictures import NoPictures
from fastweights.host import whole_number

_OURS = {"self", "num_envs", "render_mode"}  # never given as options
# Keyed by the annotation's name: annotations can be strings.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "text"),
}
_NO_LIMIT = -1  # Gymnasium's `max_episode_steps` for games without a step limit
_OPTIONAL_TEXT = ("str | None", "None | str")


def expected(gymnasium_id: str) -> dict[str, str]:
    """Return a registered environment's options, each with its type in words ("" if unknown).

    Raises whatever importing the environment raises.
    """
    return {name: _KINDS.get(kind, ((), ""))[1] for name, kind in _annotations(gymnasium_id)}


def declared_kinds(gymnasium_id: str) -> dict[str, str]:
    """Return the name of each option's type; none if the environment cannot be imported."""
    try:
        return dict(_annotations(gymnasium_id))
    except (ImportError, gymnasium.error.Error):  # `make` reports these
        return {}


def value_of(text: str, kind: str = "") -> object:
    """Return the value of an option given as text.

    Unless the type is text, `20`, `1e5`, `0.5`, `true`, `false` and `none` get their usual meaning.

    Args:
        text: the given text.
        kind: name of the option's type; "" for none.
    """
    if kind == "str" or (kind in _OPTIONAL_TEXT and text.lower() != "none"):
        return text
    for number in (whole_number, float):
        try:
            return number(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def takes(gymnasium_id: str, options: Mapping[str, object]) -> bool:
    """Return whether the constructor can be called with `options`; True if it has no signature."""
    spec = _spec(gymnasium_id)
    signature = _signature(spec)
    if signature is None:
        return True
    if _named_parameters(gymnasium.make_vec) & set(options):
        return False  # `make_gymnasium` sets these itself
    given = {**spec.kwargs, **options}
    if spec.entry_point is None:
        given["num_envs"] = 1
    else:
        for name in _named_parameters(gymnasium.make):  # which it does not pass on
            given.pop(name, None)
    try:
        signature.bind(**given)
    except TypeError:
        return False
    return True


def check_kinds(gymnasium_id: str, display: str, options: Mapping[str, object]) -> None:
    """Raise a one-line `ValueError` for a plain value that is not of the option's type."""
    for name, kind in _annotations(gymnasium_id):
        if name in options and kind in _KINDS:
            types, words = _KINDS[kind]
            if type(options[name]) not in types:
                raise ValueError(
                    f"the option {name} of {display} must be {words}, not {options[name]!r}"
                )
    limit = options.get("max_episode_steps", _NO_LIMIT)
    is_limit = type(limit) is int and (limit >= 1 or limit == _NO_LIMIT)
    if not is_limit and _spec(gymnasium_id).entry_point is not None:
        raise ValueError(
            f"the option max_episode_steps of {display} must be a whole number of at least 1, or "
            f"{_NO_LIMIT} for no limit, not {limit!r}"
        )


def check_can_draw(spec: EnvSpec, display: str) -> None:
    """Raise `NoPictures` if the constructor does not take `render_mode`."""
    parameters = _parameters(spec)
    if parameters is not None and not any(
        one.kind == one.VAR_KEYWORD or one.name == "render_mode" for one in parameters
    ):
        raise NoPictures(f"{display} draws no pictures: its constructor has no render_mode")


def constructor(spec: EnvSpec) -> Callable[..., Any]:
    """Return the constructor of one environment, or of a batch if the id has only a vector form.

    Raises whatever importing the environment raises.
    """
    entry = spec.entry_point or spec.vector_entry_point
    return load_env_creator(entry) if isinstance(entry, str) else entry


def _annotations(gymnasium_id: str) -> list[tuple[str, str]]:
    """Return each option's name and the name of its type."""
    return [
        (one.name, _kind(one.annotation))
        for one in _parameters(_spec(gymnasium_id)) or ()
        if one.name not in _OURS and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]


def _parameters(spec: EnvSpec) -> list[inspect.Parameter] | None:
    """Return the constructor's parameters; None if it has no signature."""
    signature = _signature(spec)
    return None if signature is None else list(signature.parameters.values())


def _signature(spec: EnvSpec) -> inspect.Signature | None:
    """Return the constructor's signature; None if it has none, as in C extensions."""
    try:
        return inspect.signature(constructor(spec))
    except (TypeError, ValueError):
        return None


def _spec(gymnasium_id: str) -> EnvSpec:
    return gymnasium.spec(gymnasium_id.rpartition(":")[2])


def _kind(annotation: Any) -> str:
    """Return the name of a type: `str`, or `str | None` for an optional one."""
    if isinstance(annotation, type):
        return annotation.__name__
    return re.sub(r"(?:typing\.)?Optional\[(\w+)\]", r"\1 | None", str(annotation))


def _named_parameters(function: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.kind != one.VAR_KEYWORD}
