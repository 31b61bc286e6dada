"""Where compiled kernels are kept, of CPUs and GPUs alike."""

import os
import stat
from pathlib import Path

VARIABLE = "FASTWEIGHTS_CACHE"


def cache_folder() -> Path:
    """FASTWEIGHTS_CACHE, else `fastweights` in the user's cache folder.

    Raises `OSError`, with one line, where the user has no home, as in some containers.
    """
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    try:
        folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise FileNotFoundError(
            f"this user has no home folder: set {VARIABLE} to a folder of yours"
        ) from error
    return Path(folder) / "fastweights"


def private_cache_folder() -> Path:
    """The cache folder, made where it is missing: nobody else may put a file into it.

    What is in it runs in this process. Raises `OSError`, with one line, where it cannot be made, or
    is another's (root's is fine), or can be written by others.
    """
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):  # not on Windows, where a profile's folders are private
        about = folder.stat()
        if about.st_uid not in (0, os.getuid()):
            raise PermissionError(
                f"{folder} is another user's: set {VARIABLE} to a folder of yours"
            )
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others can write to {folder}: remove it, or set {VARIABLE}")
    return folder
