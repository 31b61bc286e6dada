"""Training language models: columns, schedule, full context, micro-batches, learners, resuming."""

import copy
import math

import numpy as np
import pytest
import torch
from test_language_model import TYPES, tiny

from fastweights.kernels.recurrence import map_state
from fastweights.tasks.language_model.trainer import (
    Columns,
    LanguageTrainer,
    LanguageTrainerConfig,
    Together,
)

IDS = np.random.default_rng(1).integers(0, TYPES, size=4 * 23 + 3).astype(np.int32)


def trainer(core="rdn", dropout=0.0, together=None, ids=IDS, **config) -> LanguageTrainer:
    defaults = {"updates": 20, "warm_up": 2, "columns": 4, "span": 6, "learning_rate": 1e-2}
    model = tiny(core, "none")
    model.dropout.p = dropout
    settings = LanguageTrainerConfig(**defaults | config)
    return LanguageTrainer(model, ids, settings, 1, together)


def weights(trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def test_columns_are_the_text_and_every_prediction_comes_once():
    columns = Columns(np.arange(25, dtype=np.int32), 3)
    pieces = [columns.piece(offset, 4) for offset in (0, 4)]
    tokens, targets = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    assert tokens[:, 0].tolist() == list(range(7))
    assert targets.tolist() == (tokens + 1).tolist()
    assert tokens[0].tolist() == [0, 8, 16]
    assert Columns(np.arange(25, dtype=np.int32), 3, range(1, 3)).piece(0, 1)[0].tolist() == [
        [8, 16]
    ]
    with pytest.raises(ValueError, match="--columns 9 is too many for 17 tokens: at most 8"):
        Columns(np.arange(17), 9)


def test_the_learning_rate_warms_up_and_falls_as_a_cosine():
    config = LanguageTrainerConfig()
    assert config.rate(1) == pytest.approx(2.5e-4 / 2000)
    assert config.rate(2000) == pytest.approx(2.5e-4)
    assert config.rate(250_000) == pytest.approx(1.25e-4)
    assert config.rate(500_000) == 0
    assert trainer().update()["learning_rate"] == pytest.approx(5e-3)


def test_a_warm_up_that_outlasts_the_training_is_said():
    assert LanguageTrainerConfig(updates=500, warm_up=499).note() == ""
    long = LanguageTrainerConfig(updates=500, warm_up=2_000, learning_rate=1e-2)
    assert "--warm-up 2,000 exceeds --updates 500: the learning rate ends at 0.0025" in long.note()


def test_an_epoch_is_all_columns():
    one = trainer(updates=9)
    rows = list(one.rows())
    assert one.updates_an_epoch == 4
    assert [row["epoch"] for row in rows] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert [row["positions"] for row in rows[:4]] == [24, 24, 24, 16]
    assert rows[-1]["perplexity"] == pytest.approx(math.exp(rows[-1]["total_loss"]))


def test_it_learns_what_repeats():
    rows = list(trainer(ids=np.tile(np.arange(5, dtype=np.int32), 100), updates=120).rows())
    assert rows[-1]["total_loss"] < 0.5 * rows[0]["total_loss"]


def test_full_context_carries_the_state_until_the_epoch_ends():
    """The loss of the second span is that of a model that has read the first span."""
    whole = Columns(IDS, 4).piece(0, 12)
    for carries in (True, False):
        one = trainer(full_context=carries, learning_rate=1e-30)
        one.update()
        loss = one.update()["total_loss"]
        with torch.no_grad():
            every, _ = one.model.loss(*whole, None)
            fresh, _ = one.model.loss(*(part[6:] for part in whole), None)
        expected = every[6:] if carries else fresh
        assert loss == pytest.approx(expected.mean().item(), rel=1e-6)
    first = trainer(full_context=True, learning_rate=1e-30)
    losses = [row["total_loss"] for row in first.rows()]
    assert losses[4] == pytest.approx(losses[0], rel=1e-6)


@pytest.mark.parametrize("full_context", [True, False])
def test_parts_of_a_batch_add_up(full_context):
    whole = trainer(full_context=full_context)
    parts = trainer(full_context=full_context, micro_columns=3)
    for _ in range(5):
        one, other = whole.update(), parts.update()
        assert one["total_loss"] == pytest.approx(other["total_loss"], rel=1e-6)
    torch.testing.assert_close(weights(whole), weights(parts), atol=1e-6, rtol=0)


class Pair:
    """Two learners in one process; each update of the first waits for that of the second."""

    def __init__(self, **config):
        self.held = []
        first, second = (
            Together(range(2 * rank, 2 * rank + 2), rank, self._add) for rank in (0, 1)
        )
        self.learners = [trainer(together=one, **config) for one in (second, first)]

    def _add(self, tensors):
        self.held.append([tensor.clone() for tensor in tensors])

    def gradients(self) -> list[torch.Tensor]:
        for learner in self.learners:
            learner.update()
        return [a + b for a, b in zip(*self.held, strict=True)]


def test_learners_share_the_columns():
    pair, alone = Pair(clip=0.0), []
    together = Together(None, 0, lambda tensors: alone.extend(t.clone() for t in tensors))
    trainer(together=together, clip=0.0).update()
    for of_pair, of_one in zip(pair.gradients(), alone, strict=True):
        torch.testing.assert_close(of_pair.double(), of_one.double(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("core", "full_context"),
    [("rdn", True), ("rdn", False), ("lstm", True), ("transformer", True)],
)
@pytest.mark.parametrize("stopped_after", [4, 7])
def test_training_goes_on_bit_for_bit(core, full_context, stopped_after):
    config = {"core": core, "full_context": full_context, "dropout": 0.3, "micro_columns": 3}
    config |= {"updates": 10}
    whole = trainer(**config)
    rows = list(whole.rows())
    before = trainer(**config)
    for _ in range(stopped_after):
        before.update()
    kept = copy.deepcopy((before.model.state_dict(), before.state_dict()))
    after = trainer(**config)
    torch.manual_seed(99)
    after.model.load_state_dict(kept[0])
    after.load_state_dict(kept[1])
    assert list(after.rows()) == rows[stopped_after:]
    assert torch.equal(weights(after), weights(whole))


@pytest.mark.parametrize("core", ["rdn", "transformer", "lstm", "delta_lstm"])
def test_bfloat16_is_close_and_memories_stay_in_float32(core):
    model, (tokens, targets) = tiny(core).float(), Columns(IDS, 4).piece(0, 12)
    exact, _ = model.loss(tokens, targets, None)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, state = model.loss(tokens, targets, None)
    torch.testing.assert_close(rounded, exact, atol=2e-2, rtol=0)
    map_state(_is_float32, state)
    rounded.mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def _is_float32(tensor: torch.Tensor) -> torch.Tensor:
    assert tensor.dtype == torch.float32
    return tensor


def test_odd_numbers_are_one_line():
    for wrong, said in (
        ({"updates": 0}, "--updates must be at least 1"),
        ({"warm_up": -1}, "--warm-up must be at least 0"),
        ({"columns": 2**21}, r"--columns must lie in \[1, 2\^20\]"),
        ({"learning_rate": float("nan")}, "--learning-rate must be a number"),
        ({"clip": float("nan")}, "--clip must be a number"),
    ):
        with pytest.raises(ValueError, match=said):
            LanguageTrainerConfig(**wrong).check()
