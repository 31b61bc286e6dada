"""The cache folder for compiled CPU and GPU kernels."""

import os
import stat
from pathlib import Path

VARIABLE = "FASTWEIGHTS_CACHE"


def cache_folder() -> Path:
    """Return FASTWEIGHTS_CACHE, or else `fastweights` in the user's cache folder.

    Raises:
        OSError: the user has no home folder, as in some containers. The message is one line.
    """
    if chosen := os.environ.get(VARIABLE):
        try:
            return Path(chosen).expanduser().absolute()  # a library is loaded only by a full path
        except RuntimeError as error:
            raise FileNotFoundError(f"{VARIABLE}={chosen}: no such home folder") from error
    try:
        folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise FileNotFoundError(
            f"this user has no home folder: set {VARIABLE} to a folder that you own"
        ) from error
    return Path(folder) / "fastweights"


def private_cache_folder() -> Path:
    """Create the cache folder if missing, check that only this user can write to it, return it.

    The check matters because this process runs the files in the folder.

    Raises:
        OSError: the folder cannot be created, belongs to another user (except root), or is writable
            by others. The message is one line.
    """
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):  # Windows has no getuid; profile folders there are private
        about = folder.stat()
        if about.st_uid not in (0, os.getuid()):
            raise PermissionError(
                f"{folder} belongs to another user: set {VARIABLE} to a folder that you own"
            )
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others can write to {folder}: remove it, or set {VARIABLE}")
    return folder
