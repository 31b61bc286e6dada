"""The papers' figures for sequence tasks, from the data file in `experiments/scores/`."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastweights.evaluation import read_rows

SCORES = Path(__file__).parent / "scores"
_FILES = ("algorithmic_2021.csv", "formal_languages_2023.csv")


class AlgorithmicScore(NamedTuple):
    """One figure in a table on a sequence task, in percent."""

    task: str
    table: int
    setting: str  # of the task, such as variables=3, or empty
    row: str
    core: str
    sizes: str  # of the core, such as layers=8 width=128, if given in the table
    measure: str  # a split and a measurement in `fastweights.tasks.train.Result`
    mean: float | None  # None: the paper has no such row
    std: float | None

    @property
    def choice(self) -> str:
        """The name of the setting for `--settings`."""
        return self.setting or self.task


@cache
def algorithmic() -> list[AlgorithmicScore]:
    """Return Irie et al. 2021, Tables 2, 5, 6 and 7, and 2023, Tables 1 and 2, in their order."""
    numbers = {"table": int, "mean": _number, "std": _number}
    return [
        AlgorithmicScore(**{name: numbers.get(name, str)(text) for name, text in row.items()})
        for name in _FILES
        for row in read_rows(SCORES / name)
    ]


def _number(text: str) -> float | None:
    return float(text) if text else None
