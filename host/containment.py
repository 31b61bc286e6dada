"""Checks that a run folder's files are inside it: folders from others must not lead elsewhere."""

import os
from collections.abc import Iterator
from pathlib import Path

from fastweights.host.errors import UserError

_A_RUN_HAS = ("meta.json", "checkpoints", "model.tar", "model.safetensors")


def check_contained(folder: Path) -> None:
    """Call `check_all_contained` for the folder of a run or an agent, before it is read.

    Other folders, such as a download folder that contains a checkpoint, are not checked.
    """
    if any(os.path.lexists(folder / name) for name in _A_RUN_HAS):
        check_all_contained(folder)


def check_all_contained(folder: Path) -> None:
    """Raise a one-line `UserError` for a folder with a link out of it, a pipe or a device.

    `folder` itself may be reached through links, and links within it are allowed. Raises `OSError`
    if the folder cannot be read.
    """
    inside = folder.resolve()
    for entry in _entries(inside):
        if entry.is_symlink():
            if not _leads_into(inside, Path(entry.path)):
                raise UserError(
                    f"{entry.path!r} is a link out of the run folder, or to itself: replace it "
                    "with the file or folder itself, or remove it"
                )
        elif not (entry.is_file() or entry.is_dir()):
            raise UserError(f"{entry.path!r} is neither a file nor a folder: remove it")


def _leads_into(folder: Path, link: Path) -> bool:
    try:
        link.stat()
    except FileNotFoundError:
        pass
    except OSError:  # a loop of links, for which `resolve` depends on Python's version
        return False
    return link.resolve().is_relative_to(folder)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield everything below `folder`, without following links. Raises `OSError`."""
    folders = [str(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
