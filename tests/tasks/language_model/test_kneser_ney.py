"""The smoothed n-gram model, against its equations written out with dictionaries."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from fastweights.tasks.language_model.kneser_ney import KneserNey

TYPES = 90
# Three types never occur.
TEXT = np.minimum(np.random.default_rng(1).zipf(1.4, size=1500), TYPES - 3) - 1


class ByTheBook:
    """Chen & Goodman's equations; n-grams are tuples."""

    def __init__(self, ids, types, order):
        self.types, self.counts = types, []
        tokens = tuple(ids.tolist())
        for n in range(1, order + 1):
            grams = Counter(tokens[i : i + n] for i in range(len(tokens) - n + 1))
            if n < order:  # the number of different tokens to the left
                company = defaultdict(set)
                for i in range(1, len(tokens) - n + 1):
                    company[tokens[i : i + n]].add(tokens[i - 1])
                grams = Counter({gram: len(found) for gram, found in company.items()})
            self.counts.append(grams)

    def discount(self, n, count):
        of = Counter(self.counts[n - 1].values())
        k = min(count, 3)
        y = of[1] / (of[1] + 2 * of[2])
        return k - (k + 1) * y * of[k + 1] / of[k] if k else 0.0

    def probability(self, word, context):
        if context is None:
            return 1 / self.types
        n, grams = len(context) + 1, self.counts[len(context)]
        lower = self.probability(word, context[1:] if context else None)
        following = {gram: count for gram, count in grams.items() if gram[:-1] == context}
        total = sum(following.values())
        if not total:
            return lower
        count = grams[(*context, word)]
        left = sum(self.discount(n, c) for c in following.values()) / total
        return max(count - self.discount(n, count), 0) / total + left * lower


@pytest.mark.parametrize("order", [1, 2, 3])
def test_it_is_the_equations(order):
    model, book = KneserNey(TEXT, TYPES, order), ByTheBook(TEXT, TYPES, order)
    held_out = np.minimum(np.random.default_rng(2).zipf(1.4, size=40), TYPES) - 1
    held_out = np.concatenate([held_out, TEXT[100:140]])  # with contexts that were seen once
    losses = model.losses(held_out)
    assert len(losses) == 79
    for t, loss in enumerate(losses, 1):
        context = tuple(held_out[max(0, t - order + 1) : t].tolist())
        expected = book.probability(int(held_out[t]), context)
        assert loss == pytest.approx(-math.log(expected), rel=1e-9)


def test_probabilities_sum_to_one_whatever_came_before():
    model, last = KneserNey(TEXT, TYPES, order=4), TYPES - 1
    for context in ([0, 0, 0], [5, 5, 5], [last, 0, 1], [0, last, last]):
        losses = [model.losses(np.array([*context, word]))[-1] for word in range(TYPES)]
        assert np.exp(-np.array(losses)).sum() == pytest.approx(1)


def test_a_large_vocabulary_fits():
    ids = np.random.default_rng(3).integers(0, 250_000, size=5_000)
    assert np.isfinite(KneserNey(ids, 267_735, order=5).losses(ids[:50])).all()
    with pytest.raises(ValueError, match="order 5 cannot be estimated from 4 tokens"):
        KneserNey(ids[:4], 267_735)
