"""Modules of users' own, which a command imports because its user names them."""

import importlib
import sys
from collections.abc import Collection
from types import ModuleType


def import_named(name: str, example: str, packages: Collection[str] = ()) -> ModuleType:
    """Import the module of `my_module:name`, also from the current folder.

    The folder comes last on the path, and stays there for imports that the module makes later. An
    error inside the module keeps its traceback.

    Args:
        name: the module and, after the last colon, what is taken from it.
        example: a name in the right form, for messages.
        packages: packages that `pip install` finds under their modules' names.

    Raises:
        ValueError: there is no such module; one line.
    """
    module = name.rpartition(":")[0]
    if not module or module.startswith("."):
        begins = "begins with a dot" if module else "has no name"
        raise ValueError(f"the module of {name!r} {begins}: give {example}")
    if "" not in sys.path:
        sys.path.append("")
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        advice = (
            "it is looked for among installed packages, on PYTHONPATH and in the current folder"
        )
        if error.name in packages:
            advice = f"pip install {error.name}"
        raise ValueError(f"cannot import the module of {name!r}: {error}; {advice}") from error
