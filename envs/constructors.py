"""What an environment's constructor takes, as far as its signature says."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

_OURS = {"self", "num_envs", "render_mode"}  # which nobody gives as an option
# By the annotation's name, which is also how it reads where annotations are text.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "text"),
}


def expected(gymnasium_id: str) -> dict[str, str]:
    """The options of a registered environment, with words for those of a plain type, else empty.

    Raises what importing the environment raises.
    """
    return {name: _KINDS.get(kind, ((), ""))[1] for name, kind in _annotations(gymnasium_id)}


def check_kinds(gymnasium_id: str, display: str, options: Mapping[str, object]) -> None:
    """Raises a one-line `ValueError` for a value of another plain type than the constructor's."""
    for name, kind in _annotations(gymnasium_id):
        if name in options and kind in _KINDS:
            types, words = _KINDS[kind]
            if type(options[name]) not in types:
                raise ValueError(
                    f"the option {name} of {display} must be {words}, not {options[name]!r}"
                )


def check_can_draw(spec: EnvSpec, display: str) -> None:
    """Raises a one-line `ValueError` where the constructor can be told of no `render_mode`."""
    parameters = _parameters(spec)
    if parameters is not None and not any(
        one.kind == one.VAR_KEYWORD or one.name == "render_mode" for one in parameters
    ):
        raise ValueError(f"{display} draws no pictures: its constructor takes no render_mode")


def constructor(spec: EnvSpec) -> Callable[..., Any]:
    """What makes one environment, or a batch where there is only that. Raises as importing does."""
    entry = spec.entry_point or spec.vector_entry_point
    return load_env_creator(entry) if isinstance(entry, str) else entry


def _annotations(gymnasium_id: str) -> list[tuple[str, str]]:
    """Names of options, and of their types."""
    parameters = _parameters(gymnasium.spec(gymnasium_id.rpartition(":")[2])) or ()
    return [
        (one.name, getattr(one.annotation, "__name__", str(one.annotation)))
        for one in parameters
        if one.name not in _OURS and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]


def _parameters(spec: EnvSpec) -> list[inspect.Parameter] | None:
    """Of the constructor; None where its signature is not known, as of one written in C."""
    try:
        return list(inspect.signature(constructor(spec)).parameters.values())
    except (TypeError, ValueError):
        return None
