"""Statistics against results by hand and against rliable 1.2.0 (arch 7.2.0, pandas 2).

rliable's figures are written here because it does not run with current versions of pandas.
"""

import numpy as np
import pytest

from fastweights.evaluation.statistics import (
    STATISTICS,
    compare,
    estimate,
    iqm,
    mean,
    median,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)

# Gamma-distributed scores of five and of four runs on eight games; one score occurs in both.
X = [
    [0.917, 0.529, 0.735, 2.621, 1.064],
    [1.319, 1.128, 0.98, 1.086, 2.33],
    [0.533, 0.753, 0.479, 0.83, 1.313],
    [1.99, 0.473, 1.449, 0.248, 0.867],
    [0.457, 1.563, 0.256, 1.143, 1.664],
    [0.492, 0.44, 2.039, 0.279, 0.475],
    [0.053, 0.571, 1.016, 0.582, 0.865],
    [0.26, 0.337, 2.173, 2.536, 0.961],
]
Y = [
    [0.917, 0.186, 1.093, 0.26],
    [0.201, 0.961, 1.703, 0.87],
    [1.014, 0.585, 1.204, 0.66],
    [0.348, 1.227, 1.162, 1.685],
    [0.529, 0.362, 0.706, 0.858],
    [0.467, 0.049, 0.599, 0.877],
    [0.804, 0.409, 0.169, 0.846],
    [0.753, 0.628, 0.414, 0.088],
]


def scores(lists) -> dict[str, list[float]]:
    return {f"game {number}": runs for number, runs in enumerate(lists)}


def arrays(*games) -> list[np.ndarray]:
    return [np.array(runs, float) for runs in games]


def test_by_hand():
    games = arrays([0, 1, 2, 9], [1, 1, 3, 3])
    assert mean(games) == 2.5  # of 3 and 2
    assert median(games) == 2.5
    assert iqm(games) == 1.75  # 0 1 | 1 1 2 3 | 3 9
    assert optimality_gap(games) == 0.125  # one run of eight is below the target, by one
    assert optimality_gap(games, target=2.0) == pytest.approx((3 + 2) / 8)
    assert performance_profile([0, 1, 2.5])(games).tolist() == [
        (0.75 + 1) / 2,
        0.5,
        (0.25 + 0.5) / 2,
    ]


@pytest.mark.parametrize(
    ("runs", "middle"),
    [
        ([1, 7, 10], 6),  # a quarter of three rounds down to none
        ([0, 1, 2, 6, 100], 3),  # one of five: 0 | 1 2 6 | 100
        ([0, 1, 2, 6, 15, 100], 6),
        ([0, 1, 2, 6, 11, 30, 100], 10),  # still one of seven
        ([0, 1, 2, 6, 10, 30, 100, 200], 12),  # two of eight
    ],
)
def test_of_a_broken_number_of_runs_fewer_are_cut(runs, middle):
    """If a quarter of the runs is no whole number, fewer are cut, as in SciPy's `trim_mean`."""
    assert iqm(arrays(runs)) == middle
    assert iqm(arrays(runs[2:], runs[:2])) == middle  # games are pooled


def test_probability_of_improvement_by_hand():
    ours, theirs = arrays([2, 5], [1, 1]), arrays([1, 2, 3], [1, 1])
    # 2 beats 1, ties with 2 and loses to 3; 5 beats all three. The other game is a tie.
    assert probability_of_improvement(ours, theirs) == ((1 + 0.5 + 3) / 6 + 0.5) / 2
    both_ways = probability_of_improvement(theirs, ours) + probability_of_improvement(ours, theirs)
    assert both_ways == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "value", "low", "high"),
    [
        ("IQM", 0.8422, 0.6808, 1.0662),
        ("median", 1.011, 0.7299, 1.2229),
        ("mean", 0.99515, 0.8104, 1.1909),
        ("optimality gap", 0.2657, 0.1859, 0.3476),
    ],
)
def test_aggregates_and_intervals_are_rliables(name, value, low, high):
    ours = estimate(STATISTICS[name], scores(X))
    assert ours.value == pytest.approx(value, abs=1e-9)
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.006)


def test_comparisons_are_rliables():
    ours = estimate(probability_of_improvement, scores(X), scores(Y), resamples=20_000)
    assert ours.value == pytest.approx(0.596875)
    assert (ours.low, ours.high) == pytest.approx((0.45625, 0.73125), abs=0.01)
    profile = estimate(performance_profile([0.25, 0.5, 1.0, 2.0]), scores(X), resamples=20_000)
    assert profile.value == pytest.approx([0.95, 0.7, 0.4, 0.125])
    assert profile.low == pytest.approx([0.875, 0.575, 0.275, 0.05], abs=0.026)  # in steps of 1/40
    assert profile.high == pytest.approx([1.0, 0.825, 0.55, 0.225], abs=0.026)


def test_runs_are_drawn_within_their_game():
    """Each game's runs are equal, so resampling within a game changes nothing."""
    assert estimate(mean, {"easy": [5.0, 5.0], "hard": [1.0, 1.0]}) == (3.0, 3.0, 3.0)


def test_one_run_a_game_has_no_interval():
    found = estimate(mean, {"a": [1.0], "b": [3.0]})
    assert found.value == 2.0 and np.isnan([found.low, found.high]).all()
    levels = estimate(performance_profile([0.0, 2.0]), {"a": [1.0], "b": [3.0]})
    assert levels.value.tolist() == [1.0, 0.5] and np.isnan([levels.low, levels.high]).all()


def test_one_run_in_one_of_the_games_leaves_the_interval_unknown():
    found = estimate(mean, {"a": [100.0], "b": [0.5, 0.6]})
    assert found.value == pytest.approx(50.275) and np.isnan([found.low, found.high]).all()


def test_games_may_have_different_numbers_of_runs():
    one = estimate(mean, {"a": [1.0, 1.0, 1.0], "b": [1.0, 3.0]}, resamples=2_000)
    assert one.value == 1.5 and (one.low, one.high) == (1.0, 2.0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = []
    for trial in range(100):
        drawn = {str(game): generator.normal(game, 1.0, 10) for game in range(5)}
        found = estimate(mean, drawn, resamples=400, seed=trial)
        covered.append(found.low <= 2.0 <= found.high)
    assert 0.85 <= np.mean(covered) <= 1.0


def sums(*values: float, of: float = 1) -> np.ndarray:
    """Return scores and counts [2, N]; each score is the sum of `of` values."""
    return np.array([values, [of] * len(values)], float)


def test_a_comparison_by_hand():
    """With two draws of two, each mean is the lowest, the middle or the highest value."""
    found = compare([sums(30, 50)], [sums(10, 20)])
    assert (found.ours, found.theirs) == (40, 15)
    assert found.difference == (25, 10, 40)
    assert found.percent == pytest.approx((100 * 25 / 15, 50, 400))
    lives = compare([sums(30, 50, of=2)], [sums(10, 20, of=5)])
    assert (lives.ours, lives.theirs) == (20, 3)
    strata = compare([sums(1, 1), sums(5, 5)], [sums(-2, -2)])
    assert strata.difference == (5, 5, 5) and strata.percent == (250, 250, 250)


def test_a_game_of_many_lives_counts_for_each_of_them():
    """One game of a single life, and one of three lives: the mean over four lives."""
    one_and_three = np.array([[10.0, 6.0], [1, 3]])
    assert compare([one_and_three], [sums(1, 1)]).ours == 4


def test_a_percentage_of_what_may_be_zero_has_no_interval():
    may = compare([sums(3, 4)], [sums(-1, 2)])
    assert np.isfinite(may.difference).all()
    assert may.percent.value == 600 and np.isnan(may.percent[1:]).all()
    assert compare([sums(3, 4)], [sums(-1, 1)]).percent is None


@pytest.mark.parametrize(
    ("theirs", "bounded"),
    [
        ((-1, 3, 3), False),  # below zero if all draws are the first score: 3.7 %
        ((-2, *[1] * 9), True),  # below zero if four draws are the first score, or more: 1.3 %
    ],
)
def test_a_percentage_has_an_interval_if_its_divisor_keeps_its_sign_but_for_one_tail(
    theirs, bounded
):
    """One tail of a confidence of 95 % is 2.5 % of the draws."""
    found = compare([sums(3, 4)], [sums(*theirs)])
    assert np.isfinite(found.percent[1:]).all() == bounded


def test_one_entry_in_a_stratum_has_no_interval():
    found = compare([sums(3, 4), sums(5)], [sums(1, 2)])
    assert np.isnan(found.difference[1:]).all() and np.isnan(found.percent[1:]).all()


def test_the_interval_of_a_difference_covers_the_truth():
    generator = np.random.default_rng(0)
    covered = []
    for trial in range(200):
        ours, theirs = generator.normal(5, 1, 20), generator.normal(4, 1, 20)
        found = compare([sums(*ours)], [sums(*theirs)], resamples=400, seed=trial)
        covered.append(
            (found.difference.low <= 1 <= found.difference.high)
            and (found.percent.low <= 25 <= found.percent.high)
        )
    assert 0.87 <= np.mean(covered) < 1.0


def test_scores_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="same games"):
        estimate(probability_of_improvement, {"a": [1.0]}, {"b": [1.0]})
    with pytest.raises(ValueError, match="at least one score"):
        estimate(mean, {"a": []})
    with pytest.raises(ValueError, match="a score of b is not finite"):
        estimate(mean, {"a": [1.0, 2.0], "b": [1.0, np.nan]})
    with pytest.raises(ValueError, match=r"confidence must .*\(0, 1\).*95"):
        estimate(mean, {"a": [1.0, 2.0]}, confidence=95)
    with pytest.raises(ValueError, match="resamples must be at least 1"):
        estimate(mean, {"a": [1.0, 2.0]}, resamples=0)
