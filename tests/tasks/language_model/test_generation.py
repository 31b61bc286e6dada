"""Generating text: sampling by temperature, top k and top p; the state does not grow."""

import itertools

import pytest
import torch
from test_language_model import TYPES, tiny

from fastweights.kernels.recurrence import map_state
from fastweights.tasks.language_model.generation import Sampling, draw, generate


def tokens(model, prompt, sampling, count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return list(itertools.islice(generate(model, prompt, sampling, generator), count))


def test_the_most_probable_text_is_that_of_rereading_everything():
    model, text = tiny("rdn", "none"), [3, 1, 4]
    expected = list(text)
    for _ in range(9):
        hidden, _ = model(torch.tensor(expected)[:, None])
        expected.append(int(model.softmax.log_probabilities(hidden[-1]).argmax()))
    assert tokens(model, text, Sampling(temperature=0.0), 9) == expected[3:]


def test_seeds_decide_and_sizes_stay():
    model = tiny("delta_rnn", "none")
    assert tokens(model, [1], Sampling(), 20) == tokens(model, [1], Sampling(), 20)
    assert tokens(model, [1], Sampling(), 20) != tokens(model, [1], Sampling(), 20, seed=2)
    sizes = []
    for length in (2, 40):
        found: list[int] = []
        _, state = model(torch.zeros(length, 1, dtype=torch.long))
        map_state(lambda tensor, found=found: found.append(tensor.numel()) or tensor, state)
        sizes.append(sum(found))
    assert sizes[0] == sizes[1]


def test_what_is_left_out_is_never_drawn():
    logs, generator = torch.tensor([0.5, 0.3, 0.15, 0.05]).log(), torch.Generator().manual_seed(1)

    def drawn(**options) -> set[int]:
        return {draw(logs, Sampling(**options), generator) for _ in range(300)}

    assert drawn() == {0, 1, 2, 3}
    assert drawn(top_k=2) == {0, 1}
    assert drawn(top_p=0.75) == {0, 1}
    assert drawn(top_p=0.81) == {0, 1, 2}
    assert drawn(top_p=0.01) == {0}
    assert drawn(temperature=0.0) == {0}
    assert drawn(temperature=1e-40) == {0}
    counts = [draw(logs, Sampling(temperature=0.25), generator) for _ in range(400)]
    share = 0.5**4 / sum(p**4 for p in (0.5, 0.3, 0.15, 0.05))
    assert counts.count(0) / 400 == pytest.approx(share, abs=0.06)


def test_odd_sampling_is_one_line():
    for wrong, said in (
        ({"temperature": -1.0}, "--temperature must be at least 0"),
        ({"top_k": -1}, "--top-k must be at least 0"),
        ({"top_p": 0.0}, r"--top-p must lie in \(0, 1\]"),
    ):
        with pytest.raises(ValueError, match=said):
            Sampling(**wrong).check()


def test_every_token_can_be_read_by_the_model():
    assert set(tokens(tiny("lt"), [0], Sampling(temperature=5.0), 200)) <= set(range(TYPES))
