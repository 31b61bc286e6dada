"""The arguments of an environment's constructor, as far as its signature shows them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

_OURS = {"self", "num_envs", "render_mode"}  # never given as options
# Keyed by the annotation's name: annotations can be strings.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "text"),
}


def expected(gymnasium_id: str) -> dict[str, str]:
    """Return a registered environment's options and a description of each; "" for other types.

    Raises what importing the environment raises.
    """
    return {name: _KINDS.get(kind, ((), ""))[1] for name, kind in _annotations(gymnasium_id)}


def check_kinds(gymnasium_id: str, display: str, options: Mapping[str, object]) -> None:
    """Raise a one-line `ValueError` for a value of another plain type than the option has."""
    for name, kind in _annotations(gymnasium_id):
        if name in options and kind in _KINDS:
            types, words = _KINDS[kind]
            if type(options[name]) not in types:
                raise ValueError(
                    f"the option {name} of {display} must be {words}, not {options[name]!r}"
                )


def check_can_draw(spec: EnvSpec, display: str) -> None:
    """Raise a one-line `ValueError` if the constructor does not take `render_mode`."""
    parameters = _parameters(spec)
    if parameters is not None and not any(
        one.kind == one.VAR_KEYWORD or one.name == "render_mode" for one in parameters
    ):
        raise ValueError(f"{display} draws no pictures: its constructor takes no render_mode")


def constructor(spec: EnvSpec) -> Callable[..., Any]:
    """Return what makes one environment, or a batch if the id has only a vector form.

    Raises what importing the environment raises.
    """
    entry = spec.entry_point or spec.vector_entry_point
    return load_env_creator(entry) if isinstance(entry, str) else entry


def _annotations(gymnasium_id: str) -> list[tuple[str, str]]:
    """Return each option's name and the name of its type."""
    parameters = _parameters(gymnasium.spec(gymnasium_id.rpartition(":")[2])) or ()
    return [
        (one.name, getattr(one.annotation, "__name__", str(one.annotation)))
        for one in parameters
        if one.name not in _OURS and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]


def _parameters(spec: EnvSpec) -> list[inspect.Parameter] | None:
    """Return the constructor's parameters; None if it has no signature, as in C extensions."""
    try:
        return list(inspect.signature(constructor(spec)).parameters.values())
    except (TypeError, ValueError):
        return None
