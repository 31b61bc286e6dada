"""JSON files: reading files that other programs may have written, and atomic writing."""

import json
from pathlib import Path
from typing import Any

from fastweights.host.atomic_files import write_bytes


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in the file at `path`.

    Raises `OSError`, and `ValueError` for any other content, however deeply nested.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("not an object")
    return content


def write_json(path: Path, content: Any, indent: int = 1) -> None:
    """Write `content` as indented JSON with a final newline, completely or not at all."""
    write_bytes(path, f"{json.dumps(content, indent=indent)}\n".encode())
