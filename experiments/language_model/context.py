"""Comparison of full context with spans: does a memory predict better if its state is carried?

Differences are paired by seed, so that effects common to a seed's weights cancel. Intervals are
Student's, 95 % for normally distributed differences: a bootstrap over two or three seeds, as in the
tables, would exclude 0 as soon as all differences have the same sign.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

from fastweights.experiments.language_model.figures import FULL, SPANS
from fastweights.experiments.rows import Row

# 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom; for more, the last one.
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


class ContextEffect(NamedTuple):
    """The change in a model's figure due to full context; below 0 it helps."""

    model: str
    unit: str
    by_seed: Mapping[int, float]
    mean: float
    interval: tuple[float, float] | None  # None with one seed

    @property
    def verdict(self) -> str:
        """Return whether full context helps, as far as the seeds show."""
        if self.interval is None:
            return "one seed does not tell"
        low, high = self.interval
        if low <= 0 <= high:
            return "the seeds do not tell"
        return "it helps" if high < 0 else "it harms"

    def said(self, digits: int) -> str:
        """Return one line of text about it."""
        low, high = self.interval or (None, None)
        interval = "" if low is None else f" [{low:+.{digits}f}, {high:+.{digits}f}]"
        seeds = ", ".join(map(str, self.by_seed))
        return (
            f"{self.model}, full context minus spans: {self.mean:+.{digits}f}{interval} "
            f"{self.unit} on the test split (seeds {seeds}): {self.verdict}."
        )

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**self._asdict(), "verdict": self.verdict}


def context_effects(rows: Sequence[Row], unit: str) -> Iterator[ContextEffect]:
    """Yield one per model that has runs with the same seeds with and without full context."""
    of_spans = {_model(row): row for row in rows if row.labels["context"] == SPANS}
    for row in rows:
        spans = of_spans.get(_model(row))
        if row.labels["context"] != FULL or spans is None:
            continue
        seeds = [seed for seed in row.values if seed in spans.values]
        differences = {seed: row.values[seed] - spans.values[seed] for seed in seeds}
        if differences:
            yield ContextEffect(
                row.labels["model"],
                unit,
                differences,
                fmean(differences.values()),
                student_interval(list(differences.values())),
            )


def student_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of normal values; None for fewer than two."""
    if len(values) < 2:
        return None
    quantile = T_975[min(len(values) - 1, len(T_975)) - 1]
    margin = quantile * stdev(values) / sqrt(len(values))
    return fmean(values) - margin, fmean(values) + margin


def _model(row: Row) -> tuple[str, str]:
    return row.labels["model"], row.labels["core"]
