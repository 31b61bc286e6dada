"""What scores over several games and seeds come to, and how sure one can be of it.

Source of every definition: Agarwal et al. 2021, Deep Reinforcement Learning at the Edge of the
Statistical Precipice (NeurIPS). Scores are normalised, one number a run; a run is a training seed.
Runs of a game are exchangeable, games are not: a bootstrap draws runs within each game.

Every statistic takes a list with one array [..., runs] a game and works along the last axis, so a
bootstrap gives it all resamples at once. Games may differ in their number of runs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Games = Sequence[np.ndarray]  # one array [..., runs] a game
Scores = Mapping[str, ArrayLike]  # game -> a score a run

# Arrays [2, N] a stratum: sums of scores and how many scores each sum is of. N are drawn together,
# such as the lives of one game.
Sums = Sequence[np.ndarray]

_CHUNK = 2_000  # resamples at once, for the memory's sake


class Estimate(NamedTuple):
    """A statistic and its confidence interval; arrays where the statistic is one.

    The interval is NaN where no game has two runs: there is nothing to resample.
    """

    value: float | np.ndarray
    low: float | np.ndarray
    high: float | np.ndarray


def iqm(games: Games) -> np.ndarray:
    """Interquartile mean: of all runs of all games, the mean without the best and worst quarter."""
    everything = np.sort(np.concatenate(games, -1), -1)
    cut = everything.shape[-1] // 4
    return everything[..., cut : everything.shape[-1] - cut].mean(-1)


def mean(games: Games) -> np.ndarray:
    """Mean over games of the mean over runs."""
    return _over_games(games).mean(0)


def median(games: Games) -> np.ndarray:
    """Median over games of the mean over runs."""
    return np.median(_over_games(games), 0)


def optimality_gap(games: Games, target: float = 1.0) -> np.ndarray:
    """How far short of `target` a run falls on average; more than `target` counts as `target`."""
    return target - _over_games([np.minimum(runs, target) for runs in games]).mean(0)


def probability_of_improvement(games: Games, others: Games) -> np.ndarray:
    """Mean over games of P(a run of `games` scores above one of `others`); a tie counts half."""
    pairs = [
        np.sign(ours[..., :, None] - theirs[..., None, :]).mean((-1, -2)) / 2 + 0.5
        for ours, theirs in zip(games, others, strict=True)
    ]
    return np.mean(pairs, 0)


def performance_profile(thresholds: ArrayLike) -> Callable[[Games], np.ndarray]:
    """The statistic [..., thresholds]: share of runs above each threshold, games counting alike."""
    levels = np.asarray(thresholds, float)
    return lambda games: np.mean([(g[..., None] > levels).mean(-2) for g in games], 0)


class Comparison(NamedTuple):
    """Two mean scores, their difference, and the difference in percent of the second's size."""

    ours: float
    theirs: float
    difference: Estimate
    percent: Estimate | None  # None where the second is zero


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
    """`statistic` of one set of scores, or of two, with its stratified percentile bootstrap.

    Two sets must be of the same games.

    Raises:
        ValueError: no game, a game without runs, or sets of different games.
    """
    names = sorted(scores[0])
    if any(sorted(one) != names for one in scores):
        raise ValueError(f"scores to compare must be of the same games: {', '.join(names)}")
    sets = [[np.asarray(one[name], float) for name in names] for one in scores]
    if not names or any(runs.ndim != 1 or not runs.size for games in sets for runs in games):
        raise ValueError("every game needs a list with at least one score")
    value = statistic(*sets)
    if all(runs.size == 1 for games in sets for runs in games):
        return Estimate(value, value * np.nan, value * np.nan)
    generator = np.random.default_rng(seed)
    drawn = np.concatenate(
        [
            statistic(*([_resampled(runs, count, generator) for runs in games] for games in sets))
            for count in _chunks(resamples)
        ]
    )
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

    Each side is resampled on its own, within its strata. Intervals are NaN where some stratum has
    one entry. The percentage has none where the resampled divisor changes its sign too often to
    bound a quotient (in more than a tail of the confidence).
    """
    a, b = (float(_mean_of_strata(side)) for side in (ours, theirs))
    if any(stratum.shape[-1] < 2 for side in (ours, theirs) for stratum in side):
        drawn_a, drawn_b = np.full((2, 1), np.nan)
    else:
        generator = np.random.default_rng(seed)
        drawn_a, drawn_b = (_drawn_means(side, resamples, generator) for side in (ours, theirs))
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


def _mean_of_strata(strata: Sums) -> np.ndarray:
    """[...]: of strata [2, ..., N]."""
    return np.mean([sums.sum(-1) / counts.sum(-1) for sums, counts in strata], 0)


def _drawn_means(strata: Sums, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """[resamples]."""
    chunks = []
    for count in _chunks(resamples):
        indices = (generator.integers(one.shape[-1], size=(count, one.shape[-1])) for one in strata)
        chunks.append(_mean_of_strata([one[:, i] for one, i in zip(strata, indices, strict=True)]))
    return np.concatenate(chunks)


def _over_games(games: Games) -> np.ndarray:
    """[games, ...]: means over runs."""
    return np.stack([runs.mean(-1) for runs in games])


def _resampled(runs: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    return runs[generator.integers(runs.size, size=(count, runs.size))]


def _chunks(total: int) -> list[int]:
    return [min(_CHUNK, total - start) for start in range(0, total, _CHUNK)]
