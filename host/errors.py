"""Expected failures of a command: one line on stderr and exit code 2.

Expected failures are those that the user can correct: a `UserError`, too little memory, or an error
of the operating system (disk full, no permission). All other exceptions, including plain
`ValueError`, are bugs and keep their traceback. Folders below `launch` raise plain `ValueError` for
invalid names and sizes. A command checks its options inside `user_input()`, which marks any
`ValueError` from there as an error in the options.
"""

import errno
import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

EXIT_CODE = 2
INTERRUPTED_EXIT_CODE = 130  # 128 + SIGINT, as shells expect

# Errors of a full, failing, read-only or forbidden disk, and of a file in place of a folder or vice
# versa. ENOENT is not here: a path from the user is checked where it is read, so a missing file
# that gets this far is a bug.
_SYSTEM_SAYS_NO = {
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.ENAMETOOLONG,
}


_NO_MEMORY = "DefaultCPUAllocator: "  # torch's message continues: can't allocate memory


class UserError(ValueError):
    """A failure whose one-line message is meant for the user of a command."""


@contextmanager
def user_input() -> Iterator[None]:
    """Turn a `ValueError` in the block into a `UserError` with the same message.

    Only for blocks that check options before any training: a `ValueError` from deep inside a
    training step is a bug.
    """
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from error


def one_line_errors(main: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a command: expected failures print `error: ...` and exit with code 2.

    Raises:
        SystemExit: 2 after an expected failure, 130 after Ctrl-C.
    """

    @functools.wraps(main)
    def command(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return main(*args, **kwargs)
        except UserError as error:
            reason, code = str(error), EXIT_CODE
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            reason, code = _out_of_memory(error), EXIT_CODE
        except OSError as error:
            if error.errno not in _SYSTEM_SAYS_NO:
                raise
            reason, code = describe_os_error(error), EXIT_CODE
        except KeyboardInterrupt:
            reason, code = "interrupted", INTERRUPTED_EXIT_CODE
        # Always one line, so that scripts can rely on it.
        print("error:", one_line(reason), file=sys.stderr)
        raise SystemExit(code)

    return command


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out: an exception class on a GPU, a text on a CPU."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return bool(kinds & {"MemoryError", "OutOfMemoryError"}) or _NO_MEMORY in str(error)


def _out_of_memory(error: Exception) -> str:
    asked = re.search(r"allocate ([\d.]+ ?\w+)", str(error))
    size = f" ({asked[1]} more needed)" if asked else ""
    return (
        f"out of memory{size}: choose a smaller core (--core-width), fewer environments "
        "(--num-envs), smaller batches (--batch-size, --unroll-length), or smaller backward "
        "passes (--micro-batch, --micro-columns)"
    )


def expanded(path: Path | str) -> Path:
    """Return the path with a leading ~ replaced; raise `UserError` without a home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UserError(f"{path}: no such home folder") from error


def resolved(path: Path | str) -> Path:
    """Return the absolute path without links or a leading ~.

    Raises:
        UserError: there is no such home folder, or the path is a loop of links; one line.
    """
    path = expanded(path)
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(describe_os_error(error)) from error
    return path.resolve()


def make_folder(path: Path, name: str) -> None:
    """Create a folder and its parents; raise a `UserError` with its `name`, such as `--out`.

    An existing folder stays unchanged.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{name} cannot be created: {describe_os_error(error)}") from error


@contextmanager
def without_new_folders(path: Path) -> Iterator[None]:
    """If the block fails, remove `path` and the parent folders that the block created.

    Folders that existed before the block, or that are not empty, stay.
    """
    new: list[Path] = []
    with suppress(OSError):  # for a path that cannot be looked up
        new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in new:
            with suppress(OSError):  # not created, or not empty
                folder.rmdir()
        raise


def one_line(message: str) -> str:
    """Return a message without newlines and control characters, which could control a terminal.

    They and characters that cannot be encoded, such as undecodable bytes of a file name, become ?.
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))


def describe_os_error(error: OSError) -> str:
    """Return `runs/x: No space left on device`, without the path if the system gave none."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
