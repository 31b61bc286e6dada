"""A grid's table: declared columns in Markdown; CSV, JSON and a figure with intervals."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev

from fastweights.evaluation import markdown_table, save_figure
from fastweights.experiments.grid import Grid, rebuild
from fastweights.experiments.pictures import rows_figure
from fastweights.experiments.rows import Row, Value, rows_of
from fastweights.host import Console, UserError, did_you_mean, write_bytes, write_json

Column = Callable[[Row], str]


def label(name: str, code: bool = False) -> Column:
    """Return the column of a label, with `code` in Markdown code font."""
    return lambda row: f"`{row.labels[name]}`" if code else str(row.labels[name])


def mean_and_std(row: Row, digits: int = 1) -> str:
    """Return the cell `85.0 ± 5.0` over seeds, without ± for a single seed."""
    return mean_and_deviation(list(row.values.values()), digits) or "failed" * bool(row.failed)


def mean_and_deviation(values: Sequence[float], digits: int = 1) -> str:
    """Return `85.0 ± 5.0`, without ± for a single value, and an empty text for none."""
    if not values:
        return ""
    deviation = f" ± {pstdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{deviation}"


def interval(row: Row, digits: int = 1) -> str:
    """Return the cell `80.0 to 90.0`: 95 % of the mean's bootstrap distribution."""
    return " to ".join(f"{end:.{digits}f}" for end in row.interval) if row.interval else ""


def each_seed(row: Row, digits: int = 1) -> str:
    """Return the cell `80.0, failed, 90.0`: one value per seed."""
    if not (row.values or row.failed):
        return ""
    shown = {seed: f"{value:.{digits}f}" for seed, value in row.values.items()}
    shown |= dict.fromkeys(row.failed, "failed")
    return ", ".join(shown[seed] for seed in row.seeds if seed in shown)


def other(name: str, digits: int = 0) -> Column:
    """Return the column of another measure's mean over seeds: `500,736`."""

    def shown(row: Row) -> str:
        mean = row.others[name]
        return "" if mean is None else f"{mean:,.{digits}f}"

    return shown


@dataclass(frozen=True, kw_only=True)
class Table:
    """The columns, unit and notes of a table."""

    columns: Mapping[str, Column]  # by heading
    unit: str = "percent"  # of the values
    axis: str = ""  # label of the figure's axis: quantity and unit (default: the unit)
    title: str = ""
    note: str = ""  # shown below the Markdown table
    panel: str = ""  # label whose values each have a panel in the figure, because units differ

    def markdown(self, rows: Sequence[Row]) -> str:
        """Return the table in Markdown."""
        cells = [[column(row) for column in self.columns.values()] for row in rows]
        table = markdown_table(list(self.columns), cells)
        return f"{table}\n\n{self.note}\n" if self.note else f"{table}\n"

    def csv(self, rows: Sequence[Row]) -> str:
        """Return CSV, one line per row; the columns are the union of those of all rows."""
        lines = [row.flat() for row in rows]
        head = dict.fromkeys(name for line in lines for name in line)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, head, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        return text.getvalue()

    def write(self, rows: Sequence[Row], path: Path) -> None:
        """Write `path`.md, .csv, .json and .png, and print the Markdown."""
        text = f"# {self.title}\n\n{self.markdown(rows)}" if self.title else self.markdown(rows)
        for ending, content in (("md", text), ("csv", self.csv(rows))):
            write_bytes(path.with_name(f"{path.name}.{ending}"), content.encode())
        write_json(path.with_name(f"{path.name}.json"), [row.plain(self.unit) for row in rows])
        picture = path.with_name(f"{path.name}.png")
        save_figure(rows_figure(rows, self.axis or self.unit, self.title, self.panel), picture)
        Console().say(text)


def check_only(only: Sequence[str], cores: Iterable[str]) -> None:
    """Raise a one-line `UserError` for a core in `--only` that is not among a table's `cores`."""
    known = list(cores)
    if unknown := sorted(set(only) - set(known)):
        hint = did_you_mean(unknown[0], known)
        raise UserError(f"--only {' '.join(unknown)}: this table has {', '.join(known)}{hint}")


def write_grid(
    grid: Grid,
    table: Table,
    value: Value,
    out: Path,
    failures: Mapping[str, str],
    others: Mapping[str, Value] | None = None,
) -> list[Row]:
    """Write table.md, .csv, .json and .png, and results.json with every finished run's result.

    `failures` and `others` are as in `rows_of`.
    """
    rows = rows_of(grid.cells, failures, value, others)
    write_json(out / "results.json", grid.results())
    table.write(rows, out / "table")
    return rows


def tabulate(
    grid: Grid, table: Table, value: Value, out: Path | None = None, at_once: int = 0
) -> int:
    """Fill the grid, and write the files of `write_grid` to `out`, by default the runs' folder.

    `value`: the figure of a run. `at_once`: as in `rebuild`. Returns the exit code.
    """
    out = out or grid.folder
    return rebuild(grid, partial(write_grid, grid, table, value, out), out, at_once)
