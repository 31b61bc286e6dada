"""The output file of a benchmark's `--json` option."""

from pathlib import Path
from typing import Any

from fastweights.host import UserError
from fastweights.host import write_json as replace_json


def check_folder(path: Path | None) -> None:
    """Raise a `UserError` if the file cannot be written; call this before the measurements."""
    if path and not path.parent.is_dir():
        raise UserError(f"{path}: no folder {path.parent}; create it first")
    if path and path.is_dir():
        raise UserError(f"{path} is a folder: give a file")


def write_json(path: Path | None, content: dict[str, Any]) -> None:
    """Write the file atomically, replacing an old one. Do nothing if `path` is None."""
    if path:
        replace_json(path, content, indent=2)
