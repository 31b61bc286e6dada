"""The cores' options as flags of every command: `--core-layers 4`, ...

The flags are the fields of the configurations in `CORES`, and their help texts are the strings
below the fields. A core's own options therefore need no code here.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, make_dataclass
from functools import cache
from typing import Annotated, Any, get_type_hints

import tyro

from fastweights.cores.building import CORES, core_kind

_PREFIX = "core_"
_SIZES = {"layers", "width", "heads", "feedforward"}
# These have no flags: the command that builds a network sets them.
_OF_THE_NETWORK = {"embed", "dropout", "output_scale"}


def field_docs(config: type) -> dict[str, str]:
    """Return, by field name, the string below each field of a dataclass and its bases."""
    docs: dict[str, str] = {}
    for kind in reversed(config.__mro__[:-1]):
        docs |= _own_field_docs(kind)
    return docs


@cache  # many configurations have the same bases
def _own_field_docs(kind: type) -> dict[str, str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    return {
        field.target.id: " ".join(str(below.value.value).split())
        for field, below in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr)
    }


def _flags() -> list[tuple[str, Any, Any]]:
    """Return a dataclass field for each option of any core; None is the core's default."""
    hints: dict[str, Any] = {}
    docs: dict[str, str] = {}
    cores: dict[str, list[str]] = {}
    # Cores with the most options first, so that shared options precede those of a single core.
    for name, kind in sorted(CORES.items(), key=lambda item: -len(item[1].options())):
        config = type(kind.config)
        about = field_docs(config)
        for option in kind.options():
            hints[option] = get_type_hints(config)[option]
            docs[option] = about.get(option, "")
            cores.setdefault(option, []).append(name)
    few = len(CORES) // 3
    return [
        (_PREFIX + option, _flag(hints[option], docs[option], cores[option], few), None)
        for option in hints
        if option not in _OF_THE_NETWORK
    ]


def _flag(hint: Any, doc: str, cores: list[str], few: int) -> Any:
    of = f" For {', '.join(cores)}." if len(cores) <= few else ""
    return Annotated[hint | None, tyro.conf.arg(help=f"{doc}{of}")]


def _core_options(self: Any) -> tuple[tuple[str, Any], ...]:
    """Return the options that were given, as (name, value)."""
    names = [field.name for field in fields(self) if field.name.startswith(_PREFIX)]
    given = {name.removeprefix(_PREFIX): getattr(self, name) for name in names}
    return tuple((name, value) for name, value in given.items() if value is not None)


# Abstract: the base of a command's options.
CoreSizes = make_dataclass(
    "CoreSizes",
    _flags(),
    namespace={
        "__doc__": "The cores' options on a command line; None keeps the core's default.",
        "__module__": __name__,
        "core_options": _core_options,
    },
    frozen=True,
    kw_only=True,
)


_NAMES = {field.name for field in fields(CoreSizes)}


def of_core(core: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in `wanted` that the core has, named as command-line options.

    Raises:
        ValueError: an unknown core.
    """
    known = core_kind(core).options()
    return {f"{_PREFIX}{name}": value for name, value in wanted.items() if name in known}


def core_defaults(core: str) -> dict[str, Any]:
    """Return the core's published defaults, named as command-line options."""
    config = core_kind(core).config
    published = {f"{_PREFIX}{name}": getattr(config, name) for name in core_kind(core).options()}
    return {name: value for name, value in published.items() if name in _NAMES}


def preset_of_core(core: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return `of_core` for a preset, without sizes for cores that are named by a size.

    For example, a preset does not change the sizes of `rdn_large`.
    """
    sizes = _SIZES if is_named_by_size(core) else set()
    return of_core(core, {name: value for name, value in wanted.items() if name not in sizes})


def set_by_models(core: str) -> set[str]:
    """Return the options of a core that the model around it sets, such as `embed`.

    A field of the same name that a user's own configuration declares is the user's.
    """
    kinds = type(core_kind(core).config).__mro__
    ours = [kind for kind in kinds if kind.__module__.startswith(f"{__package__}.")]
    declared = {field.name for kind in ours if is_dataclass(kind) for field in fields(kind)}
    return declared & {"embed", "positions", "dropout"}


def is_named_by_size(core: str) -> bool:
    """Return whether the core is a size variant of an earlier core in the registry.

    A user's own core, `my_module:name`, never is.
    """
    if ":" in core:
        return False
    kind = core_kind(core)
    same = (kind.systematic_name, kind.equation)
    alike = (name for name, k in CORES.items() if (k.systematic_name, k.equation) == same)
    return next(alike) != core
