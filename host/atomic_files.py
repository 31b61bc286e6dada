"""Files that are either whole or not there: written beside, flushed, renamed.

A rename within a folder is atomic, so a reader, or a run resumed after `kill -9`, meets the old
file or the new one. What a killed writer leaves behind is named `.partial-<pid>.<name>`; the name
ends like the file's, because image and video writers choose the format by it.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial-"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write; at the end of the block it becomes `path`.

    Whatever ends the block early, Ctrl-C included, the partial file is removed and the old file
    stays. Raises `OSError` where the file cannot be written, flushed or renamed.
    """
    partial = path.with_name(f"{PARTIAL}{os.getpid()}.{path.name}")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    _flush_folder(path.parent)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Replace `path` by `content`. Raises `OSError`; the old file then stays."""
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(content)


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`, or a copy where links are impossible."""
    if target.exists() and target.samefile(source):
        return  # renaming one link over another of the same file would leave both
    with replacing(target) as partial:
        partial.unlink(missing_ok=True)
        try:
            os.link(source, partial)
        except (OSError, NotImplementedError):
            shutil.copyfile(source, partial)


def remove_partials(folder: Path, ending: str = "") -> None:
    """Remove what killed writers left in `folder`: only for the one process that writes there."""
    for leftover in folder.glob(f"{PARTIAL}*{ending}"):
        with contextlib.suppress(OSError):
            leftover.unlink()


def _flush_folder(folder: Path) -> None:
    # The rename itself is on disk only once the folder is. Some file systems (and Windows) cannot
    # flush a folder; the file is whole there too, only possibly the old one after a power cut.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
