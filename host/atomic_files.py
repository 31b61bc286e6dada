"""Files that are either complete or absent: written to a temporary name, flushed, renamed.

A rename within a folder is atomic, so a reader, or a run resumed after `kill -9`, finds either the
old file or the new one. A killed writer leaves a file `.partial-<random>.<name>`. The suffix is
kept, because image and video writers use it to choose the format.
"""

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial-"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; at the end of the block, rename it to `path`.

    If an exception (including Ctrl-C) ends the block, the partial file is removed and the old file
    stays. A device or a pipe, such as `/dev/null`, is written to and stays what it is. Raises
    `OSError`, which names `path`, if the file cannot be written, flushed or renamed.
    """
    if is_device(path):
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder, path.name)
            _append(Path(folder, path.name).read_bytes(), path)
        return
    partial = partial_name(path)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            error.filename = str(path)  # errors of writing to an open file name no path
        raise
    _flush_folder(path.parent)


def partial_name(path: Path) -> Path:
    """Return a new name beside `path`, which nobody can have foreseen and made a link of."""
    return path.with_name(f"{PARTIAL}{secrets.token_hex(8)}.{path.name}")


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Replace the content of `path`. On `OSError` the old file stays."""
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(content)


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`, or a copy where links are impossible."""
    if target.exists() and target.samefile(source):
        return  # renaming a link over another link to the same file would leave both
    with replacing(target) as partial:
        partial.unlink(missing_ok=True)
        try:
            os.link(source, partial)
        except (OSError, NotImplementedError):
            shutil.copyfile(source, partial)


def remove_partials(folder: Path, ending: str = "") -> None:
    """Remove partial files of killed writers in `folder`; only for its sole writer."""
    for leftover in folder.glob(f"{PARTIAL}*{ending}"):
        with contextlib.suppress(OSError):
            leftover.unlink()


def is_device(path: Path) -> bool:
    """Return whether `path` is a device or a pipe, or stands for one, as `/dev/stdout` does."""
    special = path.exists() and not path.is_file() and not path.is_dir()
    return special or path.parent == Path("/dev")


def _append(content: bytes, device: Path) -> None:
    try:
        with device.open("ab") as file:  # standard output may already have content
            file.write(content)
    except OSError as error:
        error.filename = str(device)
        raise


def _flush_folder(folder: Path) -> None:
    # The rename is on disk only once the folder is flushed. Some file systems (and Windows) cannot
    # flush a folder; after a power failure the old file may be there, but it is complete.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
