"""Tables that commands print, as a terminal of 80 columns shows them."""

import io

from rich.console import Console

from cores import CORES
from launch.tables import core_table


def test_eighty_columns_cut_no_name_of_a_core():
    shown = io.StringIO()
    Console(width=80, file=shown).print(core_table())
    rows: list[list[str]] = []
    for line in shown.getvalue().splitlines():
        if line.startswith("│"):
            columns = [column.strip() for column in line.strip("│").split("│")]
            if columns[0]:
                rows.append([""] * len(columns))
            rows[-1] = [old + new for old, new in zip(rows[-1], columns, strict=True)]
    assert [row[0] for row in rows] == list(CORES)
    for row, kind in zip(rows, CORES.values(), strict=True):
        whole = (kind.systematic_name, kind.equation, kind.source)
        assert list(map(_packed, row[2:])) == list(map(_packed, whole))


def _packed(text: str) -> str:
    return "".join(text.split())
