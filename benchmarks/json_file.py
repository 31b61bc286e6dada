"""The output file of a benchmark's `--json` option."""

from pathlib import Path
from typing import Any

from fastweights.host import UserError, is_device, partial_name
from fastweights.host import write_json as replace_json


def check_folder(path: Path | None) -> None:
    """Raise a `UserError` if the file cannot be written; call this before the measurements.

    Creates and removes a temporary file in the folder. Does nothing if `path` is None or a device,
    such as a pipe.
    """
    if not path or is_device(path):
        return
    if not path.parent.is_dir():
        raise UserError(f"{path}: no folder {path.parent}; create it first")
    if path.is_dir():
        raise UserError(f"{path} is a folder: give a file")
    beside = partial_name(path)
    try:
        beside.touch()
        beside.unlink()
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


def write_json(path: Path | None, content: dict[str, Any]) -> None:
    """Write the file atomically, replacing an old one. Do nothing if `path` is None."""
    if path:
        replace_json(path, content, indent=2)
