"""Compare full context with spans by seed: does a memory predict better with its state carried?

Differences are of the same seed, so that what a seed's weights have in common drops out. Intervals
are those of the project's tables: percentile bootstraps over seeds, which reach from the lowest to
the highest difference where there are three seeds or fewer.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from fastweights.experiments.language_model.figures import FULL, SPANS
from fastweights.experiments.rows import Row, interval_of


class ContextEffect(NamedTuple):
    """What full context adds to a model's figure; below 0 it helps."""

    model: str
    unit: str
    by_seed: Mapping[int, float]
    mean: float
    interval: tuple[float, float] | None  # None with one seed

    @property
    def verdict(self) -> str:
        """Say whether full context helps, as far as the seeds tell."""
        if self.interval is None:
            return "one seed does not tell"
        low, high = self.interval
        if low <= 0 <= high:
            return "the seeds do not tell"
        return "it helps" if high < 0 else "it harms"

    def said(self, digits: int) -> str:
        """Return a line of text about it."""
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
    """Yield one for each model that has runs of the same seeds with and without full context."""
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
                interval_of(list(differences.values())),
            )


def _model(row: Row) -> tuple[str, str]:
    return row.labels["model"], row.labels["core"]
