"""Construction of a core from its name and options: lookup, checks and defaults."""

import math
from dataclasses import replace
from numbers import Integral
from typing import Any

from fastweights.cores import registry
from fastweights.cores.core import Core
from fastweights.cores.kind import CoreKind
from fastweights.cores.unbounded import remedy, say_once, unbounded_maps
from fastweights.host import did_you_mean, typed_values, unknown_name

CORES: dict[str, CoreKind] = {
    name: kind for name, kind in vars(registry).items() if isinstance(kind, CoreKind)
}

# Largest sizes, beyond any machine's memory: a mistyped size gives an error, not hours of work.
LARGEST = {
    "layers": 1_000,
    "width": 100_000,
    "heads": 100_000,
    "feedforward": 1_000_000,
    "window": 1_000_000,
    "stacks": 1_000,
    "stack_width": 100_000,
    "stack_depth": 1_000_000,
    "max_write_strength": 2,
    "steps_per_token": 1_000,
}


def core_kind(name: str) -> CoreKind:
    """Return the kind of a core; raise a `ValueError` that lists the known for an unknown name."""
    if name not in CORES:
        raise ValueError(unknown_name("core", name, CORES))
    return CORES[name]


def build_core(name: str, input_size: int, **changes: Any) -> Core:
    """Build a core from its published defaults and `changes` to its config's fields.

    Warns once, on the log `fastweights`, if the settings let the state grow without bound.

    Raises:
        ValueError: as in `core_config`; an input size below 1; or values that do not fit each other
            (a width that the heads do not divide, an unknown feature map).
    """
    if not isinstance(input_size, Integral) or input_size < 1:
        raise ValueError(f"the input size must be a whole number of at least 1, not {input_size!r}")
    core = core_kind(name).build(input_size, core_config(name, **changes))
    if line := growth(name, **changes):
        say_once(name, line)
    return core


def growth(name: str, **changes: Any) -> str | None:
    """Return which settings let the core's state grow without bound, and the remedy; or None."""
    maps = unbounded_maps(core_config(name, **changes)) if core_kind(name).delta_rule else {}
    return remedy(maps) if maps else None


def core_config(name: str, **changes: Any) -> Any:
    """Return a core's config, a dataclass: its published defaults with `changes`.

    Raises:
        ValueError: an unknown core, an option that the core does not have, or a value of another
            type, not finite, too small or too large.
    """
    kind = core_kind(name)
    for option in changes:
        if option not in kind.options():
            have = ", ".join(kind.options()) or "none"
            hint = did_you_mean(option, kind.options())
            raise ValueError(f"core {name!r} has no option {option!r}; it has: {have}{hint}")
    changes = typed_values(type(kind.config), changes, "core option ")
    for option, value in changes.items():
        if type(value) is float and not math.isfinite(value):
            raise ValueError(f"core option {option!r} must be a finite number, not {value}")
        if type(getattr(kind.config, option)) is int and value < 1:
            raise ValueError(f"core option {option!r} must be at least 1, not {value}")
        if option in LARGEST and value > LARGEST[option]:
            raise ValueError(f"core option {option!r} must be at most {LARGEST[option]}")
    return replace(kind.config, **changes)
