"""Users' modules, which a command imports because its user names them."""

import importlib
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from fastweights.host.errors import UserError


class BrokenModule(Exception):
    """A user's module raised a `ValueError` on import, which is not an error in an option."""


@contextmanager
def saying_where() -> Iterator[None]:
    """Add file and line to a `ValueError` in the block, which calls a user's constructor.

    The error may reject an option or be a bug; its location tells the author which.
    """
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        raise ValueError(f"{error} ({where})") from error


@contextmanager
def reporting_exit(what: str, kind: type[UserError]) -> Iterator[None]:
    """Raise `kind`, one line, if user code in the block ends the program.

    `what`: the culprit for the message, such as `MyGame-v0: render()`.
    """
    try:
        yield
    except SystemExit as error:
        raise kind(
            f"{what} called sys.exit({error.code!r}): raise an error that says what is wrong"
        ) from error


def import_named(name: str, example: str, packages: Collection[str] = ()) -> ModuleType:
    """Import the module of `my_module:name`; the current folder is searched, too.

    The folder comes last on the path, and stays there for later imports by the module. An error
    inside the module keeps its traceback.

    Args:
        name: the module and, after the last colon, the object in it.
        example: a name in the right form, for messages.
        packages: packages that `pip install` finds under their modules' names.

    Raises:
        ValueError: there is no such module; one line.
        BrokenModule: from the `ValueError` that the module raised.
        UserError: the module called `sys.exit`; one line.
    """
    module = name.rpartition(":")[0]
    if not module or module.startswith("."):
        begins = "begins with a dot" if module else "has no name"
        raise ValueError(f"the module of {name!r} {begins}: use the form {example}")
    if "" not in sys.path:
        sys.path.append("")
    with reporting_exit(f"the module of {name!r}", UserError):
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            advice = "installed packages, PYTHONPATH and the current folder were searched"
            if error.name in packages:
                advice = f"pip install {error.name}"
            raise ValueError(f"cannot import the module of {name!r}: {error}; {advice}") from error
        except ValueError as error:
            raise BrokenModule(f"cannot import the module of {name!r}: {error}") from error
