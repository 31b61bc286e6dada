"""Statistics of scores over several games and seeds, with confidence intervals.

Source of all definitions: Agarwal et al. 2021, Deep Reinforcement Learning at the Edge of the
Statistical Precipice (NeurIPS). Scores are normalised, one number per run; a run is a training
seed. Runs of a game are exchangeable, games are not: a bootstrap resamples runs within each game.

Every statistic takes a list with one array [..., runs] per game and works along the last axis, so a
bootstrap passes all resamples at once. Games may differ in their number of runs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Games = Sequence[np.ndarray]  # one array [..., runs] per game
Scores = Mapping[str, ArrayLike]  # game -> one score per run

# Arrays [2, N], one per stratum: sums of scores, and the number of scores in each sum. The scores
# in one sum, such as the lives of one game, are resampled together.
Sums = Sequence[np.ndarray]

_CHUNK = 2_000  # resamples at once, to limit memory


class Estimate(NamedTuple):
    """A statistic and its confidence interval; arrays if the statistic is an array.

    The interval is NaN if some game has a single run, because its spread is unknown.
    """

    value: float | np.ndarray
    low: float | np.ndarray
    high: float | np.ndarray


def iqm(games: Games) -> np.ndarray:
    """Return the interquartile mean: over all games' runs without the best and worst quarter."""
    everything = np.sort(np.concatenate(games, -1), -1)
    cut = everything.shape[-1] // 4
    return everything[..., cut : everything.shape[-1] - cut].mean(-1)


def mean(games: Games) -> np.ndarray:
    """Return the mean over games of the mean over runs."""
    return _over_games(games).mean(0)


def median(games: Games) -> np.ndarray:
    """Return the median over games of the mean over runs."""
    return np.median(_over_games(games), 0)


def optimality_gap(games: Games, target: float = 1.0) -> np.ndarray:
    """Return the mean shortfall of runs below `target`; zero for runs above it."""
    return target - _over_games([np.minimum(runs, target) for runs in games]).mean(0)


def probability_of_improvement(games: Games, others: Games) -> np.ndarray:
    """Return the mean over games of P(run of `games` > run of `others`); ties count half."""
    pairs = [
        np.sign(ours[..., :, None] - theirs[..., None, :]).mean((-1, -2)) / 2 + 0.5
        for ours, theirs in zip(games, others, strict=True)
    ]
    return np.mean(pairs, 0)


def performance_profile(thresholds: ArrayLike) -> Callable[[Games], np.ndarray]:
    """Return the statistic [..., thresholds]: share of runs above each, games weighted equally."""
    levels = np.asarray(thresholds, float)
    return lambda games: np.mean([(g[..., None] > levels).mean(-2) for g in games], 0)


class Comparison(NamedTuple):
    """Two mean scores, their difference, and the difference in percent of the second's size."""

    ours: float
    theirs: float
    difference: Estimate
    percent: Estimate | None  # None if the second is zero


STATISTICS: dict[str, Callable[[Games], np.ndarray]] = {
    "IQM": iqm,
    "median": median,
    "mean": mean,
    "optimality gap": optimality_gap,
}


def estimate(
    statistic: Callable[..., np.ndarray],
    *scores: Scores,
    confidence: float = 0.95,
    resamples: int = 50_000,
    seed: int = 0,
) -> Estimate:
    """Return `statistic` of one or two sets of scores, with a stratified percentile bootstrap.

    Two sets must cover the same games.

    Args:
        confidence: coverage of the interval, in (0, 1).
        resamples: number of bootstrap samples.

    Raises:
        ValueError: no game, a game without runs or with a score that is not finite, sets of
            different games, or an argument out of range.
    """
    _check_bootstrap(confidence, resamples)
    names = sorted(scores[0])
    if any(sorted(one) != names for one in scores):
        raise ValueError(f"scores to compare must cover the same games: {', '.join(names)}")
    sets = [[np.asarray(one[name], float) for name in names] for one in scores]
    if not names or any(runs.ndim != 1 or not runs.size for games in sets for runs in games):
        raise ValueError("every game needs a list with at least one score")
    for games in sets:
        for name, runs in zip(names, games, strict=True):
            if not np.isfinite(runs).all():
                raise ValueError(f"a score of {name} is not finite: exclude its run, and say so")
    value = statistic(*sets)
    if any(runs.size == 1 for games in sets for runs in games):
        return Estimate(value, value * np.nan, value * np.nan)
    drawn = _bootstrap(statistic, sets, resamples, np.random.default_rng(seed))
    tail = 50 * (1 - confidence)
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0)
    return Estimate(value, low, high)


def compare(
    ours: Sums,
    theirs: Sums,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare two mean scores, each the mean over strata, by a stratified percentile bootstrap.

    Each side is resampled separately within its strata. Intervals are NaN if some stratum has only
    one entry. The percentage has no interval if the resampled divisor changes sign too often (in
    more than one tail of the confidence interval) to bound the quotient.

    Raises:
        ValueError: a confidence outside (0, 1), or fewer than one resample.
    """
    _check_bootstrap(confidence, resamples)
    a, b = (float(_mean_of_strata(side)) for side in (ours, theirs))
    if any(stratum.shape[-1] < 2 for side in (ours, theirs) for stratum in side):
        drawn_a, drawn_b = np.full((2, 1), np.nan)
    else:
        generator = np.random.default_rng(seed)
        drawn_a, drawn_b = (
            _bootstrap(_mean_of_strata, [side], resamples, generator) for side in (ours, theirs)
        )
    tails = 50 * (1 - confidence), 50 * (1 + confidence)
    difference = Estimate(a - b, *np.percentile(drawn_a - drawn_b, tails))
    if b == 0:
        return Comparison(a, b, difference, None)
    bounded = np.mean(drawn_b * np.sign(b) <= 0) <= (1 - confidence) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = 100 * (drawn_a - drawn_b) / np.abs(drawn_b)
    limits = (
        np.nanpercentile(quotients, tails)
        if bounded and not np.isnan(quotients).all()
        else [np.nan] * 2
    )
    return Comparison(a, b, difference, Estimate(100 * (a - b) / abs(b), *limits))


def _check_bootstrap(confidence: float, resamples: int) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), such as 0.95, not {confidence}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, not {resamples}")


def _mean_of_strata(strata: Sums) -> np.ndarray:
    """Return [...] from strata [2, ..., N]."""
    return np.mean([sums.sum(-1) / counts.sum(-1) for sums, counts in strata], 0)


def _over_games(games: Games) -> np.ndarray:
    """Return means over runs, [games, ...]."""
    return np.stack([runs.mean(-1) for runs in games])


def _bootstrap(
    statistic: Callable[..., np.ndarray],
    sets: Sequence[Sequence[np.ndarray]],
    resamples: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Return `statistic` [resamples, ...] of arrays, each resampled along its last axis."""

    def drawn(stratum: np.ndarray, count: int) -> np.ndarray:
        size = stratum.shape[-1]
        return stratum[..., generator.integers(size, size=(count, size))]

    chunks = []
    for start in range(0, resamples, _CHUNK):
        count = min(_CHUNK, resamples - start)
        chunks.append(statistic(*([drawn(one, count) for one in strata] for strata in sets)))
    return np.concatenate(chunks)
