"""The comparison of full context with spans uses equal seeds and claims no more than they show."""

import numpy as np
import pytest

from fastweights.experiments.language_model.context import context_effects, student_interval
from fastweights.experiments.rows import Row


def row(context: str, values: dict[int, float], core: str = "rdn") -> Row:
    labels = {"model": core, "core": core, "context": context}
    return Row(labels=labels, seeds=(1, 2, 3), values=values)


def effect(spans: dict[int, float], full: dict[int, float]):
    (found,) = context_effects([row("spans", spans), row("full context", full)], "bits per byte")
    return found


def test_it_is_the_mean_difference_of_the_same_seeds():
    found = effect({1: 1.80, 2: 1.90, 3: 2.0}, {1: 1.75, 3: 1.90})
    assert found.by_seed == pytest.approx({1: -0.05, 3: -0.10})
    assert found.mean == pytest.approx(-0.075)
    assert found.interval == pytest.approx((-0.075 - 12.706 * 0.025, -0.075 + 12.706 * 0.025))
    assert found.said(3) == (
        "rdn, full context minus spans: -0.075 [-0.393, +0.243] bits per byte on the test split "
        "(seeds 1, 3): the seeds do not tell."
    )


def test_the_verdict_is_what_the_seeds_tell():
    spans = {1: 1.8, 2: 1.8, 3: 1.8}
    assert effect(spans, {1: 1.7, 2: 1.9, 3: 1.8}).verdict == "the seeds do not tell"
    assert effect(spans, {1: 1.9, 2: 1.9, 3: 1.81}).verdict == "the seeds do not tell"
    assert effect(spans, {1: 1.9, 2: 1.9, 3: 1.88}).verdict == "it harms"
    assert effect(spans, {1: 1.7, 2: 1.7, 3: 1.72}).verdict == "it helps"
    alone = effect(spans, {2: 1.2})
    assert (alone.verdict, alone.interval) == ("one seed does not tell", None)


def test_seeds_without_an_effect_rarely_tell_one():
    """95 % intervals of three or five normal differences hold their mean, 0, in 95 % of cases."""
    generator = np.random.default_rng(0)
    for count in (2, 3, 5, 12):
        drawn = generator.normal(size=(2_000, count))
        held = [low <= 0 <= high for low, high in map(student_interval, drawn.tolist())]
        assert np.mean(held) == pytest.approx(0.95, abs=0.015)


def test_only_models_with_both_are_compared():
    rows = [row("spans", {1: 1.0}), row("full context", {1: 1.0}, "lstm"), row("spans", {}, "lt")]
    assert list(context_effects(rows, "perplexity")) == []
    assert list(context_effects([*rows, row("full context", {2: 1.0})], "perplexity")) == []
