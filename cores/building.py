"""Construction of a core from its name and options: lookup, checks and defaults."""

import math
import shlex
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral
from typing import Any

from fastweights.cores import registry
from fastweights.cores.core import Core
from fastweights.cores.kind import CoreKind
from fastweights.cores.own_core import check_core, kind_in
from fastweights.cores.unbounded import remedy, say_once, unbounded_maps
from fastweights.host import (
    did_you_mean,
    import_named,
    one_line,
    saying_where,
    typed_values,
    unknown_name,
)

CORES: dict[str, CoreKind] = {
    name: kind for name, kind in vars(registry).items() if isinstance(kind, CoreKind)
}

# Maximum sizes, beyond any machine's memory: a mistyped size gives an error, not hours of work.
LARGEST = {
    "layers": 1_000,
    "width": 100_000,
    "heads": 100_000,
    "feedforward": 1_000_000,
    "window": 1_000_000,
    "convolution": 1_000,
    "stacks": 1_000,
    "stack_width": 100_000,
    "stack_depth": 1_000_000,
    "max_write_strength": 2,
    "steps_per_token": 1_000,
}


def import_core(name: str | None) -> None:
    """Import the core `my_module:name` into `CORES`; None and known names change nothing.

    Only for names that the user gives: importing a module runs its code, and loading a file must
    never do this. The current folder is searched, too.

    Raises:
        ValueError: an unknown name, no such module, or a module without that core; one line.
    """
    if name is None or (name in CORES and not in_main_program(name)):  # a notebook may redefine it
        return
    if ":" not in name:
        core_kind(name)  # raises
    module = import_named(name, "my_module:name")
    CORES[name] = kind_in(module, name.rpartition(":")[2])


def in_main_program(name: str) -> bool:
    """Return whether a notebook or script itself defines the core: no command can import it."""
    return name.startswith("__main__:")


def core_arguments(name: str) -> list[str]:
    """Return the arguments with which a command imports the core; none for built-in cores."""
    return ["--core", name] if ":" in name else []


def core_kind(name: str) -> CoreKind:
    """Return the kind of a core.

    Raises:
        ValueError: an unknown name, or one whose module was not imported by `import_core`.
    """
    if not isinstance(name, str):
        raise ValueError(
            f"a core must be given by name (rdn, my_module:name), not as a {type(name).__name__}; "
            "kind.build(input_size, kind.config) builds a core from a kind"
        )
    if name in CORES:
        return CORES[name]
    if ":" in name:
        raise ValueError(
            f"the core {name!r} is in a module that would be imported: if you trust it, "
            f"add --core {shlex.quote(name)}, or in Python call import_core({name!r})"
        )
    raise ValueError(f"{unknown_name('core', name, CORES)}; a core of your own is my_module:name")


def build_core(name: str, input_size: int, **changes: Any) -> Core:
    """Build a core from its published defaults and `changes` to its config's fields.

    Warns once, on the log `fastweights`, if the settings let the state grow without bound.

    Raises:
        ValueError: as in `core_config`; an input size below 1; inconsistent or unknown values (a
            width that the heads do not divide, an unknown feature map); or a user's core that
            breaks the interface.
    """
    if not isinstance(input_size, Integral) or input_size < 1:
        raise ValueError(f"the input size must be a whole number of at least 1, not {input_size!r}")
    config = core_config(name, **changes)
    try:
        with saying_where() if ":" in name else nullcontext():
            core = core_kind(name).build(input_size, config)
    except TypeError as error:  # abstract methods, for example
        if ":" not in name:
            raise
        raise ValueError(f"core {name!r} cannot be built: {one_line(str(error))}") from error
    if ":" in name:
        check_core(name, core, input_size)
    if line := growth(name, **changes):
        say_once(name, line)
    return core


def growth(name: str, **changes: Any) -> str | None:
    """Return the settings that let the core's state grow without bound, and the remedy; or None."""
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
        if option in LARGEST and value < 1:
            raise ValueError(f"core option {option!r} must be at least 1, not {value}")
        if option in LARGEST and value > LARGEST[option]:
            raise ValueError(
                f"core option {option!r} must be at most {LARGEST[option]}, not {value}"
            )
    return replace(kind.config, **changes)
