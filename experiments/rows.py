"""A grid's rows: the measurements of one setting and core, with statistics over seeds.

Statistics are means, population standard deviations, and 95 % intervals: a percentile bootstrap
over seeds (`evaluation/statistics.py`), which is too narrow for a handful of seeds. A single seed
has neither a deviation nor an interval.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from statistics import fmean, pstdev
from typing import Any

from fastweights.evaluation import PublishedScore, estimate, mean
from fastweights.experiments.grid import Cell, Run

# Computes a figure from labels and a run's result; None or not finite if it was not measured.
Value = Callable[[dict[str, Any]], float | None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """The measurements of one setting and core, over seeds."""

    labels: Mapping[str, Any]  # without the seed
    seeds: Sequence[int]
    values: Mapping[int, float]  # by seed, of finished runs
    others: Mapping[str, float | None] = field(default_factory=dict)  # means of other measures
    failed: Sequence[int] = ()  # seeds
    runs: Mapping[int, Run] = field(default_factory=dict)  # finished runs, by seed
    published: PublishedScore | None = None
    details: Mapping[str, Any] = field(default_factory=dict)  # more for the JSON file

    @property
    def mean(self) -> float | None:
        """The mean over seeds; None without a finished run."""
        return _mean(self.values.values())

    @property
    def std(self) -> float | None:
        """The population standard deviation over seeds; None with fewer than two seeds."""
        return pstdev(self.values.values()) if len(self.values) > 1 else None

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """95 % of the mean's bootstrap distribution; None with fewer than two seeds."""
        return interval_of(list(self.values.values()))

    def plain(self, unit: str) -> dict[str, Any]:
        """Return the row as JSON.

        The values are named `unit`, in the order of `seeds`; None for seeds without a value.
        """
        values = {unit: [self.values.get(seed) for seed in self.seeds]}
        by_seed = {"seeds": list(self.seeds), "failed": list(self.failed)}
        found = {**self._statistics(), **self.others}
        return {**self.labels, **values, **by_seed, **found, **self.details}

    def flat(self) -> dict[str, Any]:
        """Return the row as a CSV line, with empty cells for seeds without a value."""
        each = {f"seed_{seed}": self.values.get(seed) for seed in self.seeds}
        return {**self.labels, **self._statistics(), **self.others, **each}

    def _statistics(self) -> dict[str, float | None]:
        low, high = self.interval or (None, None)
        ours = {"mean": self.mean, "std": self.std, "low": low, "high": high}
        paper = self.published
        return ours | ({"paper_mean": paper.mean, "paper_std": paper.std} if paper else {})


def interval_of(values: Sequence[float]) -> tuple[float, float] | None:
    """Return 95 % of the mean's bootstrap distribution; None with fewer than two values."""
    if len(values) < 2:
        return None
    found = estimate(mean, {"": list(values)})
    return float(found.low), float(found.high)


def rows_of(
    cells: Iterable[Cell],
    failures: Mapping[str, str],
    value: Value,
    others: Mapping[str, Value] | None = None,
) -> list[Row]:
    """Return one row per group of cells that differ only in their seed, in the cells' order.

    Args:
        cells: the grid's cells.
        failures: reasons, by run name.
        value: the rows' figure.
        others: further figures, for which a row has the mean.
    """
    grouped: dict[tuple, list[Cell]] = {}
    for cell in cells:
        key = tuple((name, cell.labels[name]) for name in cell.labels if name != "seed")
        grouped.setdefault(key, []).append(cell)
    measures = others or {}
    return [_row(dict(key), of_row, failures, value, measures) for key, of_row in grouped.items()]


def _row(
    labels: dict[str, Any],
    cells: Sequence[Cell],
    failures: Mapping[str, str],
    value: Value,
    others: Mapping[str, Value],
) -> Row:
    runs = {cell.labels["seed"]: cell.run for cell in cells if cell.run}
    finished = {s: run for s, run in runs.items() if run.finished and run.name not in failures}
    results = {seed: {**labels, **run.result()} for seed, run in finished.items()}
    return Row(
        labels=labels,
        seeds=[cell.labels["seed"] for cell in cells],
        values=_measured(results, value),
        others={name: _mean(_measured(results, one).values()) for name, one in others.items()},
        failed=[seed for seed, run in runs.items() if run.name in failures],
        runs=finished,
    )


def _measured(results: Mapping[int, dict[str, Any]], value: Value) -> dict[int, float]:
    found = {seed: value(result) for seed, result in results.items()}
    return {seed: one for seed, one in found.items() if one is not None and isfinite(one)}


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return fmean(values) if values else None
