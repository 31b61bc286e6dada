"""The file that a benchmark's `--json` names."""

from pathlib import Path
from typing import Any

from fastweights.host import json_files
from fastweights.host.errors import UserError


def check_folder(path: Path | None) -> None:
    """Raises a `UserError` where no such file can be: before hours of measuring."""
    if path and not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it first")
    if path and path.is_dir():
        raise UserError(f"{path} is a folder: name a file")


def write_json(path: Path | None, content: dict[str, Any]) -> None:
    """Replaces the file, whole or not at all; nothing where none was asked for."""
    if path:
        json_files.write_json(path, content, indent=2)
