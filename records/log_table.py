r"""`logs.csv` and `fields.csv`, in the format of TorchBeast's tools.

`logs.csv` begins with `# _tick,_time,...`; lines end with `\r\n`; `_tick` counts rows, `_time` is
in seconds since 1970, `step` in agent steps. Whenever the list of columns grows, `fields.csv` gets
a row with the whole list, and `logs.csv` is rewritten with the longer first line. (TorchBeast keeps
the old first line, so that later rows have more cells than names.)
"""

import contextlib
import csv
import io
import re
import time
from pathlib import Path
from typing import Any

from fastweights.host import UserError, write_bytes

# TorchBeast's columns, in its order.
COLUMNS = (
    *("_tick", "_time", "step", "episode_returns", "mean_episode_return", "mean_episode_step"),
    *("total_loss", "pg_loss", "baseline_loss", "entropy_loss", "learner_queue_size"),
)


_A_TICK = re.compile(r"[0-9]{1,18}")


class LogTable:
    """A writer that appends rows to `folder`/logs.csv, after the existing rows.

    Raises `OSError`.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "logs.csv"
        self._fields_path = folder / "fields.csv"
        self.fields, rows = _read(self._path)
        self._tick = _next_tick(rows)
        if self.fields:
            self._replace(self.fields, rows)  # drops the half line of a killed process
        else:
            self.fields = list(COLUMNS)
            self._replace(self.fields, [])
            self._note_fields()

    def log(self, row: dict[str, Any], now: float | None = None) -> None:
        """Append `row` with `_tick` and `_time` (seconds since 1970, default: now).

        None becomes an empty cell. If writing fails, no part of the row remains.
        """
        self._add_fields(row)
        stamped = {"_tick": self._tick, "_time": time.time() if now is None else now, **row}
        _append(self._path, _line([_cell(stamped.get(name)) for name in self.fields]))
        self._tick += 1

    def rewind(self, step: int) -> None:
        """Remove rows whose `step` (agent steps) exceeds `step`; `_tick` keeps counting."""
        _, rows = _read(self._path)
        if "step" not in self.fields:
            raise UserError(f"{self._path} has no column `step`: it is not a run's log")
        column = self.fields.index("step")
        rows = [row for row in rows if not _is_beyond(row[column], step)]
        self._replace(self.fields, rows)
        self._tick = _next_tick(rows)

    def _add_fields(self, row: dict[str, Any]) -> None:
        new = [name for name in row if name not in self.fields]
        if new:
            _, rows = _read(self._path)
            fields = [*self.fields, *new]
            self._replace(fields, [row + [""] * len(new) for row in rows])
            self.fields = fields
            self._note_fields()

    def _replace(self, fields: list[str], rows: list[list[str]]) -> None:
        lines = [b"# " + _line(fields), *(_line(row) for row in rows)]
        write_bytes(self._path, b"".join(lines))

    def _note_fields(self) -> None:
        _append(self._fields_path, _line(self.fields))


def read_logs(path: Path) -> dict[str, list[Any]]:
    """Return the columns of a `logs.csv`, or that of a run folder, as lists of equal length.

    Numbers are int or float, tuples tuples, empty cells None, other cells str. A half-written last
    line is ignored. TorchBeast's own files are supported.

    Raises:
        UserError: there is no such file, or it is not a log table.
    """
    path = Path(path)
    path = path / "logs.csv" if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"no logs at {path}: check the path of the run folder")
    fields, rows = _read(path)
    return {name: [_value(row[index]) for row in rows] for index, name in enumerate(fields)}


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return column names and complete rows of equal length; no names without a first line."""
    content = path.read_bytes() if path.exists() else b""
    text = content[: content.rfind(b"\n") + 1].decode("utf-8", errors="replace")
    if not text:
        return [], []
    if not text.startswith("#"):
        raise UserError(f"{path} is not a log table: its first line does not begin with '#'")
    # A power failure can leave NUL bytes in place of rows that had not reached the disk.
    lines = (line for line in io.StringIO(text, newline="") if "\0" not in line)
    # The returns of many short games may need a cell larger than the default 131,072 bytes.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    try:
        first, *rows = csv.reader(lines)
    except (csv.Error, ValueError) as error:
        raise UserError(f"{path} is not a log table: {error}") from error
    fields = [name.strip() for name in ",".join(first).removeprefix("#").split(",")]
    rows = [row for row in rows if row and _A_TICK.fullmatch(row[0])]
    fields = _longer_fields(path, fields, max(map(len, rows), default=0))
    return fields, [(row + [""] * len(fields))[: len(fields)] for row in rows]


def _longer_fields(path: Path, fields: list[str], width: int) -> list[str]:
    """Return all columns: TorchBeast's first line has the first tick's only, `fields.csv` all."""
    history = path.with_name("fields.csv")
    if width <= len(fields) or not history.exists():
        return fields
    try:
        with history.open(newline="", encoding="utf-8", errors="replace") as file:
            longest = max(csv.reader(file), key=len, default=[])
    except csv.Error:
        return fields
    return longest if longest[: len(fields)] == fields else fields


def _append(path: Path, line: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        start = file.tell()
        try:
            while line:  # a nearly full disk accepts part of a line before it fails
                line = line[file.write(line) :]
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(start)
            raise


def _line(cells: list[str]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if hasattr(value, "item"):  # a NumPy or torch scalar
        value = value.item()
    # No line breaks in cells, so that a half-written last row can be recognised.
    return " ".join(value.split()) if isinstance(value, str) else str(value)


def _value(cell: str) -> Any:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    if cell.startswith("(") and cell.endswith(")"):
        values = [_value(part.strip()) for part in cell[1:-1].removesuffix(",").split(",")]
        if all(isinstance(value, int | float) for value in values):
            return tuple(values)
        return () if cell == "()" else cell
    return cell or None


def _is_beyond(cell: str, step: int) -> bool:
    value = _value(cell)
    return isinstance(value, int | float) and value > step


def _next_tick(rows: list[list[str]]) -> int:
    return int(rows[-1][0]) + 1 if rows else 0
