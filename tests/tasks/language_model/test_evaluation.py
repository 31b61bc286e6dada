"""Sliding windows and full context, against a new computation for every single token."""

import math

import numpy as np
import pytest
import torch
from test_language_model import TYPES, tiny

from fastweights.tasks.language_model.corpus import Split
from fastweights.tasks.language_model.evaluation import (
    carried_loss,
    length_buckets,
    losses_by_position,
    mean_loss,
    sliding_loss,
)

IDS = np.random.default_rng(1).integers(0, TYPES, size=30).astype(np.int32)
WINDOW = 7
CORES = ("rdn", "transformer", "lstm")


def one(model, context: np.ndarray, target: int) -> float:
    """Return the loss of one token after a context that is read from a fresh state."""
    with torch.no_grad():
        hidden, _ = model(torch.from_numpy(context.astype(np.int64))[:, None])
        return -model.softmax.log_probabilities(hidden[-1])[0, target].item()


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("stride", [1, 3, 7])
@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_sliding_windows_are_brute_force(core, stride, at_once):
    model, expected = tiny(core, ngrams=3), 0.0
    for position in range(len(IDS) - 1):  # predicts IDS[position + 1]
        windows = max(0, -(-(position + 1 - WINDOW) // stride))
        expected += one(model, IDS[windows * stride : position + 1], IDS[position + 1])
    counted = []
    total = sliding_loss(model, IDS, WINDOW, stride, at_once, counted.append)
    assert total == pytest.approx(expected, rel=1e-10)
    assert sum(counted) == len(IDS) - 1


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("columns", [1, 3, 4])
@pytest.mark.parametrize("span", [1, 5, 64])
def test_full_context_is_brute_force(core, columns, span):
    options = {"window": 30} if core == "transformer" else {}
    model, expected = tiny(core, "none", ngrams=3, **options), 0.0
    each = -(-(len(IDS) - 1) // columns)
    for position in range(len(IDS) - 1):
        begin = position // each * each
        expected += one(model, IDS[begin : position + 1], IDS[position + 1])
    counted = []
    total = carried_loss(model, IDS, span, columns, counted.append)
    assert total == pytest.approx(expected, rel=1e-10)
    assert sum(counted) == len(IDS) - 1


def test_a_short_text_is_one_window():
    model = tiny("delta_net")
    expected = sum(one(model, IDS[: t + 1], IDS[t + 1]) for t in range(3))
    assert sliding_loss(model, IDS[:4], WINDOW, 1, 8) == pytest.approx(expected, rel=1e-10)
    assert carried_loss(model, IDS[:4], 256, 9) > 0


def test_losses_by_position_are_those_of_pieces():
    model = tiny("delta_rnn", "none")
    found = losses_by_position(model, IDS, length=9, span=4, at_once=2)
    expected = [
        np.mean([one(model, IDS[s : s + t + 1], IDS[s + t + 1]) for s in (0, 9, 18)])
        for t in range(9)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    drawn = list(length_buckets(found))
    assert [(first, last) for first, last, _ in drawn] == [(1, 1), (2, 2), (3, 4), (5, 8), (9, 9)]
    assert drawn[2][2] == pytest.approx(np.mean(expected[2:4]))
    with pytest.raises(ValueError, match="--context 50 is more than the 29 predictions"):
        losses_by_position(model, IDS, length=50, span=4, at_once=2)


def test_a_model_is_left_as_it_was():
    model = tiny("lstm").train()
    sliding_loss(model, IDS, WINDOW, 7, 8)
    assert model.training


def test_measures_are_per_token_word_and_byte():
    """Ten tokens are five words and forty bytes, with a loss of 2 nats for each token."""
    split = Split(np.zeros(10, np.int32), lines=1, words=5, length=40, replaced=0)
    found = mean_loss(9 * 2.0, split)
    assert found.predictions == 9
    assert found.perplexity == pytest.approx(math.exp(2))
    assert found.word_perplexity == pytest.approx(math.exp(4))
    assert found.bits_per_byte == pytest.approx(2 * 10 / 40 / math.log(2))
    assert mean_loss(9 * 2.0, split._replace(replaced=1)).bits_per_byte is None


def test_strides_beyond_the_window_are_one_line():
    for stride in (0, 8):
        with pytest.raises(ValueError, match=r"--stride must lie in \[1, 7\]"):
            sliding_loss(tiny("lt"), IDS, WINDOW, stride, 1)
