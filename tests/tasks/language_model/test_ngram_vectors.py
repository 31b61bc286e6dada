"""Vectors of n-grams, against a table written out by hand, and for a text in pieces."""

import pytest
import torch
from test_language_model import TYPES, B, T, tiny

from fastweights.tasks.language_model.ngram_vectors import SIZE, NgramVectors

N, ROWS, WIDTH = 4, 37, 8


def row(gram: tuple[int, ...]) -> int:
    """Compute an n-gram's row with Python's integers, the newest token first."""
    code = 0
    for token in reversed(gram):
        code = (code * 1_000_003 + token) % (2**31 - 1)
    return code % ROWS


def vectors() -> NgramVectors:
    torch.manual_seed(1)
    return NgramVectors(N, ROWS, WIDTH).double()


@pytest.mark.parametrize("types", [TYPES, 267_735])
def test_they_are_looked_up_by_the_last_tokens(types):
    of, tokens = vectors(), torch.randint(types, (T, B))
    found, after = of(tokens, torch.zeros(B, N - 1, dtype=torch.float64))
    for b in range(B):
        line = [0] * (N - 1) + [token + 1 for token in tokens[:, b].tolist()]
        assert after[b].tolist() == line[-(N - 1) :]
        for t in range(T):
            grams = [tuple(line[N + t - n : N + t]) for n in range(2, N + 1)]
            parts = [table[row(gram)] for table, gram in zip(of.tables, grams, strict=True)]
            torch.testing.assert_close(found[t, b], of.project.weight @ torch.cat(parts))


def test_few_bigrams_of_bytes_share_a_row():
    """Collisions are as rare as for random rows: 14 % of 10,000 n-grams in 2**15 rows."""
    of = NgramVectors(2, 2**15, WIDTH)
    with torch.no_grad():
        of.tables[0].copy_(torch.arange(2**15)[:, None].expand(-1, SIZE))
        of.project.weight.fill_(1 / SIZE)
    pairs = torch.cartesian_prod(torch.arange(32, 132), torch.arange(32, 132)).t()
    rows = of(pairs, torch.zeros(pairs.shape[1], 1))[0][1, :, 0].round().unique()
    assert 0.80 < len(rows) / pairs.shape[1] < 0.95


@pytest.mark.parametrize("pieces", [(1,) * 9, (2, 1, 6), (4, 5)])
def test_a_text_may_come_in_pieces(pieces):
    model, tokens = tiny("rdn", "none", ngrams=N), torch.randint(TYPES, (9, B))
    whole, after = model(tokens)
    state, parts = None, []
    for piece in tokens.split(pieces):
        hidden, state = model(piece, state)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-8, rtol=0)
    assert state.recent.tolist() == after.recent.tolist() == (tokens[-3:] + 1).t().tolist()


def test_without_memory_ngrams_are_the_only_context():
    for ngrams, reach in ((1, 1), (3, 3)):
        model, tokens = tiny("feedforward", "none", ngrams=ngrams), torch.randint(TYPES, (T, 1))
        other = tokens.clone()
        other[1] = (other[1] + 1) % TYPES
        changed = (model(tokens)[0] != model(other)[0]).any(-1)[:, 0]
        assert changed.tolist() == [1 <= t < 1 + reach for t in range(T)]


def test_every_table_learns():
    model, tokens = tiny("rdn", ngrams=N), torch.randint(TYPES, (T, B))
    loss, _ = model.loss(tokens, tokens.roll(1, 0), None)
    loss.sum().backward()
    for table in model.ngrams.tables:
        hit = table.grad.abs().sum(-1) > 0
        assert 1 < hit.sum() <= T * B
