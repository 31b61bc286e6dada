"""The paper's figures for sequence tasks, from the data file in `experiments/scores/`."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastweights.evaluation.published_scores import read_rows

SCORES = Path(__file__).parent / "scores"


class AlgorithmicScore(NamedTuple):
    """One figure of a table about code execution or ListOps, in percent."""

    task: str
    table: int
    setting: str  # one of the task's: variables=3
    row: str
    core: str
    sizes: str  # of the core, where the table names them: layers=8 width=128
    measure: str  # a split and a measure of `fastweights.tasks.train.Result`
    mean: float
    std: float


@cache
def algorithmic() -> list[AlgorithmicScore]:
    """Irie et al. 2021, Tables 2, 5, 6 and 7, in their order."""
    numbers = {"table": int, "mean": float, "std": float}
    return [
        AlgorithmicScore(**{name: numbers.get(name, str)(text) for name, text in row.items()})
        for row in read_rows(SCORES / "algorithmic_2021.csv")
    ]
