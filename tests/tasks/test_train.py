"""The trainer learns, chooses by the held-out split, stops early, and resumes bit for bit."""

import copy
import math
import re

import pytest
import torch

from fastweights.host import UserError
from fastweights.tasks import UNASKED, CodeExecution, ListOps, Sample, baseline_accuracies
from fastweights.tasks.sequence_model import ModelConfig, SequenceModel
from fastweights.tasks.sequences import Sequences, draw_splits
from fastweights.tasks.train import (
    Result,
    SequenceScores,
    Trainer,
    TrainerConfig,
    evaluate,
    score_sequences,
)

TASK = ListOps(depth=1)
SPLITS = draw_splits(TASK, {"train": 200, "valid": 40, "test": 40}, seed=1)


def trainer(seed: int = 1, dropout: float = 0.0, **config) -> Trainer:
    torch.manual_seed(seed)
    options = ModelConfig(core="lstm", core_options=(("width", 32),), embedding=16, dropout=dropout)
    model = SequenceModel(len(TASK.words), len(TASK.answers), options)
    defaults = {"learning_rate": 1e-2, "batch_size": 32, "epochs": 2}
    settings = TrainerConfig(**defaults | config)
    return Trainer(model, SPLITS["train"], SPLITS["valid"], TASK.blank, settings, seed)


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


class Scripted(SequenceModel):
    """A model that gives prescribed answers in order."""

    def __init__(self, answers: list[int]):
        super().__init__(1, 3, ModelConfig(core="feedforward", embedding=1))
        self.answers = answers

    def forward(self, tokens, asked):
        return 9 * torch.nn.functional.one_hot(torch.tensor(self.answers), 3).float()


def test_accuracies_are_counted_as_the_paper_counts():
    """Three sequences have every combination of blank and answer, right and wrong."""
    samples = [
        Sample((0, 0, 0), (0, 1, 0)),
        Sample((0, 0, 0), (0, 1, 2)),
        Sample((0, 0, 0), (UNASKED, 0, UNASKED)),
    ]
    # Answers row by row; within a row of time, column by column. Unasked positions have none.
    told = [0, 0, 1, 1, 1, 0, 1]
    result = evaluate(Scripted(told), Sequences.of(samples), blank=0, batch_size=3)
    assert result.sequence_accuracy == pytest.approx(1 / 3)
    assert result.answer_accuracy == pytest.approx(2 / 3)
    everything = evaluate(Scripted(told), Sequences.of(samples), blank=None, batch_size=3)
    assert everything.answer_accuracy == pytest.approx(5 / 7)


def test_baselines_give_the_commonest_answers_and_are_scored_as_models_are():
    """Of the answers, 6 is the commonest; after word 1 it is 5. Blanks are commoner than both."""
    task = CodeExecution()
    learned = [Sample((1, 1, 2, 2), (5, 5, task.blank, task.blank)), Sample((1, 3, 3), (6, 6, 6))]
    learned += [Sample((2, 2, 2), (task.blank, task.blank, UNASKED))]
    tested = [Sample((1, 3, 2), (5, 6, task.blank)), Sample((0, 3), (UNASKED, 6))]
    found = baseline_accuracies(task, Sequences.of(learned), Sequences.of(tested))
    always, after = (
        found[name]
        for name in ("always the commonest answer", "the commonest answer after each word")
    )
    assert always == {"sequence_accuracy": 1 / 2, "answer_accuracy": 2 / 3}
    assert after == {"sequence_accuracy": 1 / 2, "answer_accuracy": 1.0}


def test_batch_size_does_not_change_an_evaluation():
    model = trainer().model
    one, other = (evaluate(model, SPLITS["test"], None, size) for size in (7, 40))
    assert one == pytest.approx(other, rel=1e-5)
    assert model.training


def test_nothing_is_dropped_while_answers_are_scored():
    model = trainer(dropout=0.5).model
    one, other = (evaluate(model, SPLITS["test"], None, 40) for _ in range(2))
    assert one == other and model.training


def test_it_learns_list_ops_of_depth_one():
    training = trainer(epochs=25)
    before = evaluate(training.model, SPLITS["test"], None, 40)
    for _ in training.rows():
        pass
    after = evaluate(training.model, SPLITS["test"], None, 40)
    assert before.sequence_accuracy < 0.3
    assert after.sequence_accuracy > 0.5


def test_it_learns_code_execution_with_a_fast_weight_core():
    task = CodeExecution(variables=1, statements=3)
    splits = draw_splits(task, {"train": 200, "valid": 50}, seed=1)
    options = (("width", 32), ("heads", 4), ("layers", 1), ("feedforward", 32), ("embed", "none"))
    config = ModelConfig(core="delta_net", core_options=options, embedding=32)
    model = SequenceModel(len(task.words), len(task.answers), config)
    settings = TrainerConfig(learning_rate=1e-2, batch_size=16, epochs=15)
    training = Trainer(model, splits["train"], splits["valid"], task.blank, settings, 1)
    losses = [row["total_loss"] for row in training.rows()]
    assert losses[-1] < losses[0] / 4
    # Chance is 0.1: ten values.
    assert evaluate(model, splits["valid"], task.blank, 50).answer_accuracy > 0.25


def test_rows_count_updates_and_end_each_epoch_with_the_held_out_split():
    training = trainer()
    rows = list(training.rows())
    assert [row["step"] for row in rows] == list(range(1, 15))  # 2 epochs x 7 batches
    assert [row["step"] for row in rows if "score" in row] == [7, 14]
    held_out = evaluate(training.model, SPLITS["valid"], None, 40)
    assert rows[-1]["valid_sequence_accuracy"] == held_out.sequence_accuracy
    assert rows[-1]["score"] == held_out.score


@pytest.mark.parametrize("cut", [3, 7, 9])
def test_a_restored_run_goes_on_bit_for_bit(cut):
    """Resume amid an epoch, at its end, and in a later epoch; dropout draws random numbers."""
    whole = trainer(dropout=0.3)
    torch.manual_seed(5)
    expected = [row["total_loss"] for row in whole.rows()]

    first = trainer(dropout=0.3)
    torch.manual_seed(5)
    rows = first.rows()
    losses = [next(rows)["total_loss"] for _ in range(cut)]
    saved = copy.deepcopy((first.state_dict(), first.model.state_dict(), torch.get_rng_state()))

    second = trainer(seed=9, dropout=0.3)
    second._seed = 1
    second.load_state_dict(saved[0])
    second.model.load_state_dict(saved[1])
    torch.set_rng_state(saved[2])
    losses += [row["total_loss"] for row in second.rows()]
    assert losses == expected
    assert torch.equal(weights(second), weights(whole))


def test_patience_ends_training():
    training = trainer(learning_rate=1e-12, epochs=50, patience=3)  # nothing ever improves
    assert len([row for row in training.rows() if "score" in row]) == 4
    assert training.finished and training.stale_epochs == 3


def test_patience_begins_anew_after_the_best_score_so_far(monkeypatch):
    shares = iter([0.1, 0.1, 0.3, 0.1, 0.2, 0.9])
    monkeypatch.setattr(
        "fastweights.tasks.train.evaluate", lambda *given: Result(0.0, (one := next(shares)), one)
    )
    training = trainer(epochs=50, patience=2)
    scores = [row["score"] for row in training.rows() if "score" in row]
    assert scores == [0.1, 0.1, 0.3, 0.1, 0.2] and training.best_score == 0.3


def test_the_held_out_split_is_measured_as_often_as_asked():
    training = trainer(evaluate_every=4)
    rows = list(training.rows())
    assert [row["step"] for row in rows if "score" in row] == [4, 8, 12, 14]
    assert len(rows) == 14
    rows = list(trainer(evaluate_every=100).rows())
    assert ["score" in row for row in rows] == [False] * 13 + [True]


def test_training_ends_once_everything_held_out_was_right_often_enough(monkeypatch):
    shares = iter([1.0, 0.9, 1.0, 1.0, 1.0])
    monkeypatch.setattr(
        "fastweights.tasks.train.evaluate", lambda *given: Result(0.0, next(shares), 1.0)
    )
    training = trainer(epochs=50, evaluate_every=2, solved_for=2)
    assert len(list(training.rows())) == 8
    assert training.finished and training.epoch == 1
    assert len(list(training.rows())) == 0


def test_the_learning_rate_falls_to_zero_over_all_epochs():
    training = trainer(anneal=True)
    rates = []
    for _ in training.rows():
        rates.append(training._optimiser.param_groups[0]["lr"])
    assert rates == pytest.approx([1e-2 * (1 - step / 14) for step in range(14)])


@pytest.mark.parametrize("cut", [4, 9])
def test_a_restored_run_measures_and_anneals_as_the_whole_one(cut):
    config = {"evaluate_every": 3, "anneal": True, "average": 0.8}
    whole = trainer(**config)
    expected = list(whole.rows())
    first = trainer(**config)
    rows = first.rows()
    found = [next(rows) for _ in range(cut)]
    second = trainer(seed=9, **config)
    second._seed = 1
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    second.model.load_state_dict(copy.deepcopy(first.model.state_dict()))
    assert found + list(second.rows()) == expected


def test_the_average_of_the_weights_is_what_is_measured():
    """By hand: the weights after the first update, then 0.8 average plus 0.2 new weights."""
    training = trainer(average=0.8, evaluate_every=2)
    rows, average = training.rows(), None
    for _ in range(4):
        row = next(rows)
        new = [p.detach().clone() for p in training.model.parameters()]
        average = average or new
        average = [0.8 * old + 0.2 * p for old, p in zip(average, new, strict=True)]
    for expected, kept in zip(average, training.measured.parameters(), strict=True):
        torch.testing.assert_close(kept, expected)
    assert not torch.equal(kept, new[-1])
    held_out = evaluate(training.measured, SPLITS["valid"], TASK.blank, 40)
    assert row["score"] == held_out.score


@pytest.mark.parametrize(
    ("average", "changes", "says"),
    [
        (0.8, {}, "after 14 updates, .* 5 % of the initial .* --epochs, or set .* below 0.8$"),
        (0.99, {"epoch": 1}, "88 % of the initial weights: set --average below 0.99$"),
        (0.9, {"updates": 1}, "after 1 updates, .* 100 % of the initial"),
        (0.7, {}, "^$"),  # 0.97 %
        (0.99, {"updates": 0}, "^$"),
        (0.0, {"updates": 1}, "^$"),
    ],
)
def test_an_average_that_is_mostly_first_weights_is_said(average, changes, says):
    training = trainer(average=average)
    training.updates, training.epoch = 14, 2
    vars(training).update(changes)
    assert re.search(says, training.note())


def test_the_share_of_the_first_weights_is_as_said():
    training = trainer(average=0.8)
    rows = training.rows()
    next(rows)
    with torch.no_grad():  # weights that stay 0 leave the first weights' share in the average
        for first in training.measured.parameters():
            first.fill_(1.0)
        for _ in range(13):
            for weight in training.model.parameters():
                weight.zero_()
            training._average.update_parameters(training.model)
    for weight in training.measured.parameters():
        torch.testing.assert_close(weight, torch.full_like(weight, 0.8**13))


def test_without_an_average_the_weights_themselves_are_measured():
    training = trainer()
    assert training.measured is training.model


def test_batches_have_similar_lengths_unless_told_otherwise():
    def spread(similar: bool) -> float:
        lengths = SPLITS["train"].lengths.double()
        batches = trainer(similar_lengths=similar, batch_size=10)._batches()
        return torch.stack([lengths[batch].std() for batch in batches]).mean().item()

    whole = SPLITS["train"].lengths.double().std().item()
    assert spread(similar=True) < 0.5 * whole < 0.8 * whole < spread(similar=False)


def test_what_is_counted_of_each_sequence_adds_up():
    model = trainer().model
    whole = score_sequences(model, SPLITS["test"], TASK.blank, 7)
    assert whole.result() == pytest.approx(
        evaluate(model, SPLITS["test"], TASK.blank, 40), rel=1e-5
    )
    assert (whole.asked == 1).all() and (whole.wrong + whole.right_answers == 1).all()


def test_clipping_bounds_the_step_of_the_gradient():
    training = trainer(clip=1e-3)
    next(training.rows())
    squares = sum(p.grad.square().sum() for p in training.model.parameters())
    assert squares.sqrt() <= 1e-3 * 1.001


@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_a_gradient_that_is_not_finite_moves_nothing(clip):
    """One infinite entry; clipping multiplies it by 0, which gives NaN."""
    training = trainer(clip=clip, average=0.8)
    rows = training.rows()
    next(rows)
    before = copy.deepcopy((training.state_dict(), training.model.state_dict()))
    entry = next(training.model.parameters()).register_hook(
        lambda gradient: gradient.index_fill(0, torch.tensor([0]), torch.inf)
    )
    assert next(rows)["gradient_norm"] == torch.inf
    entry.remove()
    for name, kept in before[1].items():
        assert torch.equal(kept, training.model.state_dict()[name]), name
    for name in ("optimiser", "average"):
        torch.testing.assert_close(training.state_dict()[name], before[0][name], rtol=0, atol=0)
    assert math.isfinite(next(rows)["gradient_norm"]) and weights(training).isfinite().all()


def test_a_run_restored_beyond_the_end_of_an_epoch_is_refused():
    """Its training split was longer; without a batch, it would wait for ever."""
    training = trainer()
    training.position = 7
    with pytest.raises(
        UserError, match="after 7 batches of an epoch, which now has only 7: restore"
    ):
        next(training.rows())


def test_without_a_limit_a_long_gradient_is_left_alone():
    training = trainer()
    with torch.no_grad():
        training.model.output.weight.mul_(100)
    row = next(training.rows())
    squares = sum(p.grad.square().sum() for p in training.model.parameters())
    assert squares.sqrt().item() == pytest.approx(row["gradient_norm"]) and squares > 4


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"batch_size": 0}, r"--batch-size must lie in \[1, 2\^20\]"),
        ({"epochs": 0}, "--epochs must be at least 1"),
        ({"learning_rate": 0.0}, "--learning-rate must be above 0"),
        ({"clip": -1.0}, "--clip must be at least 0"),
        ({"patience": -1}, "--patience must be at least 0"),
        ({"evaluate_every": -1}, "--evaluate-every must be at least 0"),
        ({"solved_for": -1}, "--solved-for must be at least 0"),
        ({"learning_rate": float("nan")}, "--learning-rate must be a number"),
        ({"learning_rate": float("inf")}, "--learning-rate must be finite"),
        ({"clip": float("nan")}, "--clip must be a number"),
        ({"average": 1.0}, r"--average must lie in \[0, 1\)"),
        ({"average": float("nan")}, "--average must be a number"),
        ({"batch_size": 10**18}, r"--batch-size must lie in \[1, 2\^20\]"),
    ],
)
def test_impossible_settings(config, says):
    with pytest.raises(ValueError, match=says):
        TrainerConfig(**config).check()


def test_adam_is_the_published_one():
    """Compute two updates by hand with beta 0.9 and 0.995, and epsilon 1e-9."""
    training = trainer()
    parameters = list(training.model.double().parameters())
    means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    rows = training.rows()
    for update in (1, 2):
        before = [p.detach().clone() for p in parameters]
        next(rows)
        for i, (old, new) in enumerate(zip(before, parameters, strict=True)):
            means[i] = 0.9 * means[i] + 0.1 * new.grad
            squares[i] = 0.995 * squares[i] + 0.005 * new.grad**2
            mean, square = means[i] / (1 - 0.9**update), squares[i] / (1 - 0.995**update)
            expected = old - 1e-2 * mean / (square.sqrt() + 1e-9)
            torch.testing.assert_close(new.detach(), expected, atol=1e-12, rtol=0)


def test_every_epoch_and_every_seed_has_an_order_of_its_own():
    orders = []
    for seed in (1, 2):
        training = trainer(seed)
        for training.epoch in (0, 1):
            orders.append(torch.cat(training._batches()))
    assert all(torch.equal(order.sort().values, torch.arange(200)) for order in orders)
    assert len({tuple(order.tolist()) for order in orders}) == 4


def test_an_epoch_s_score_is_the_mean_of_both_accuracies():
    assert Result(loss=0.0, sequence_accuracy=0.2, answer_accuracy=0.6).score == 0.4


def test_sequences_without_answers_have_no_share_of_right_ones():
    """A length of code execution may have programs that print nothing."""
    found = SequenceScores(*(torch.tensor([n]) for n in (1.5, 3, 0, 0, 0))).result()
    assert found.sequence_accuracy == 1.0 and math.isnan(found.answer_accuracy)
