"""Reading of JSON files that other programs may have written."""

import json
from pathlib import Path
from typing import Any


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
