"""Training on sequences: one update per batch, one validation per epoch.

Adam as published (Irie et al. 2021, appendix B.2 and its code): beta 0.9 and 0.995, epsilon 1e-9.
The loss is the mean cross-entropy over the asked positions of a batch. The validation split selects
the best epoch and stops training early. Reported scores are on a third, unseen split.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fastweights.host import (
    BATCH,
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    UserError,
    check_range,
    check_ranges,
)
from fastweights.tasks.gradient_step import gradient_step
from fastweights.tasks.sequence_model import SequenceModel
from fastweights.tasks.sequences import (
    POOL,
    Batch,
    Sequences,
    shuffled_batches,
    sorted_batches,
)
from fastweights.tasks.task import UNASKED

SCORED_AT_ONCE = 256  # sequences per batch; fewer if they are long
LARGEST_FIRST_SHARE = 0.01  # of the initial weights in an average; above it, `note` warns


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Options of training on sequences."""

    learning_rate: float = 3e-4
    """Learning rate of Adam; the paper uses 3e-3 for the LSTM."""
    anneal: bool = False
    """Decay the learning rate linearly to zero by the end of the last epoch."""
    clip: float = 0.0
    """Maximum gradient norm; 0: no limit. The paper uses 0.1 for the LSTM."""
    batch_size: int = 64
    """Number of sequences per update."""
    # Short and long strings of a language give different gradients, so batches of one length make
    # the gradient noise many times larger.
    similar_lengths: bool = True
    """Put sequences of similar lengths into a batch, which saves time, instead of any lengths."""
    average: float = 0.0
    """Decay rate of an exponential moving average of the weights, in [0, 1). If set, the average is
    evaluated and saved as the best; 0: no average. The share of the initial weights in it is
    average ** (updates - 1), which is 0.57 after 57 updates with 0.99: short runs need a smaller
    value."""
    epochs: int = 200
    """Maximum number of epochs."""
    evaluate_every: int = 0
    """Number of updates between measurements on the held-out split; 0: one after each epoch."""
    patience: int = 0
    """Number of measurements without a better held-out score after which training ends; 0: train
    for all epochs."""
    solved_for: int = 0
    """Number of consecutive measurements with all held-out sequences correct after which training
    ends; 0: train for all epochs."""

    def check(self) -> None:
        """Raise a one-line `ValueError` for an invalid value."""
        check_range("batch_size", self.batch_size, BATCH)
        check_range("epochs", self.epochs, COUNT)
        check_range("learning_rate", self.learning_rate, POSITIVE)
        check_ranges(self, NOT_NEGATIVE, "clip", "evaluate_every", "patience", "solved_for")
        check_range("average", self.average, "[0, 1)")


class Result(NamedTuple):
    """Scores on a split. `loss`: mean cross-entropy over asked positions, in nats."""

    loss: float
    sequence_accuracy: float  # fraction of sequences without a wrong position
    answer_accuracy: float  # fraction of correct answers, blanks excluded; NaN if none

    @property
    def score(self) -> float:
        """The score that selects the best epoch: the mean of both accuracies.

        The paper uses only the first, which stays 0 until some sequence is entirely correct.
        """
        return (self.sequence_accuracy + self.answer_accuracy) / 2


class SequenceScores(NamedTuple):
    """Counts for each sequence of a split, in order."""

    loss: Float[Tensor, " N"]  # summed over asked positions, nats
    asked: Int[Tensor, " N"]
    wrong: Int[Tensor, " N"]
    answers: Int[Tensor, " N"]  # blanks excluded
    right_answers: Int[Tensor, " N"]

    def result(self) -> Result:
        """Return the result over all sequences."""
        right = (self.wrong == 0).double().mean().item()
        answers = self.answers.sum().item()
        of_answers = self.right_answers.sum().item() / answers if answers else math.nan
        return Result(self.loss.sum().item() / self.asked.sum().item(), right, of_answers)


@torch.no_grad()
def score_sequences(
    model: SequenceModel, sequences: Sequences, blank: int | None, batch_size: int
) -> SequenceScores:
    """Answer every sequence; `blank` is the answer that means "none"."""
    was_training = model.training
    model.eval()
    found = torch.zeros(len(SequenceScores._fields), len(sequences.lengths), dtype=torch.float64)
    for chosen in sorted_batches(sequences.lengths, batch_size):
        batch = _on(_device(model), sequences.batch(chosen))
        where = batch.targets != UNASKED
        logits, targets = model(batch.tokens, where), batch.targets[where]
        right = logits.argmax(-1) == targets
        is_answer = torch.ones_like(right) if blank is None else targets != blank
        loss = F.cross_entropy(logits, targets, reduction="none")
        counted = (loss, torch.ones_like(right), ~right, is_answer, right & is_answer)
        column = where.nonzero()[:, 1]
        sums = loss.new_zeros(len(counted), len(chosen))
        sums.index_add_(1, column, torch.stack([each.to(loss.dtype) for each in counted]))
        found[:, chosen] = sums.cpu().double()
    model.train(was_training)
    return SequenceScores(found[0], *found[1:].long())


def evaluate(
    model: SequenceModel, sequences: Sequences, blank: int | None, batch_size: int
) -> Result:
    """Return the scores over all sequences, by `score_sequences`."""
    return score_sequences(model, sequences, blank, batch_size).result()


class Trainer:
    """The training of a model; `state_dict` has everything to resume it except the weights.

    Args:
        model: the model.
        train: the training split.
        valid: the validation split.
        blank: the answer that means "none".
        config: options of training.
        seed: seed of the order of batches only.
        stage: `stage(name)` wraps transfer, gradient, optimise and test (validation).
    """

    def __init__(
        self,
        model: SequenceModel,
        train: Sequences,
        valid: Sequences,
        blank: int | None,
        config: TrainerConfig,
        seed: int,
        stage: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ):
        config.check()
        self.model, self.config, self._stage = model, config, stage
        self._train, self._valid, self._blank, self._seed = train, valid, blank, seed
        self._optimiser = torch.optim.Adam(
            model.parameters(), lr=config.learning_rate, betas=(0.9, 0.995), eps=1e-9, fused=True
        )
        self._average = None
        if config.average:
            follow = get_ema_multi_avg_fn(config.average)
            self._average = AveragedModel(model, multi_avg_fn=follow)
        self.updates = self.epoch = self.position = self.stale_epochs = self.solved = 0
        self.best_score = -1.0

    @property
    def measured(self) -> SequenceModel:
        """The model that is validated: with averaged weights if `average` is set."""
        return self._average.module if self._average else self.model

    @property
    def updates_an_epoch(self) -> int:
        """The number of updates per epoch."""
        return -(-len(self._train.lengths) // self.config.batch_size)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        if not self.config.anneal:
            return self.config.learning_rate
        share = self.epoch + self.position / self.updates_an_epoch
        return self.config.learning_rate * (1 - share / self.config.epochs)

    @property
    def finished(self) -> bool:
        """Whether training has ended."""
        config = self.config
        out_of_patience = 0 < config.patience <= self.stale_epochs
        is_solved = 0 < config.solved_for <= self.solved
        return self.epoch >= config.epochs or out_of_patience or is_solved

    def note(self) -> str:
        """Return a line if too much of the average is still initial weights; else ""."""
        average, updates = self.config.average, self.updates
        share = average ** (updates - 1) if average and updates else 0.0
        if share <= LARGEST_FIRST_SHARE:
            return ""
        longer = "" if self.epoch < self.config.epochs else "train for more --epochs, or "
        return (
            f"note: after {updates:,} updates, the evaluated average of the weights still contains "
            f"{100 * share:.0f} % of the initial weights: {longer}set --average below {average}"
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """Update until training ends; yield the log row of each update.

        If validation follows an update, the row of this update also has `valid_*` and `score`. It
        always follows the last update.

        Raises:
            UserError: the restored epoch has fewer batches than when training stopped; one line.
        """
        while not self.finished:
            batches = self._batches()
            if self.position >= len(batches):
                raise UserError(
                    f"training stopped after {self.position} batches of an epoch, which now has "
                    f"only {len(batches)}: restore the run's own training sequences"
                )
            for chosen in batches[self.position :]:
                row = self.update(self._train.batch(chosen))
                self.position += 1
                ended = self.position == len(batches)
                if ended:
                    self.epoch, self.position = self.epoch + 1, 0
                every = self.config.evaluate_every
                due = self.updates % every == 0 if every else ended
                if due or self.finished:
                    row |= self._measure()
                yield row
                if self.finished:
                    break

    def update(self, batch: Batch) -> dict[str, Any]:
        """Take one Adam step on a batch; return its log row: loss, gradient norm, positions.

        If the norm is not finite, all weights stay unchanged.
        """
        with self._stage("transfer"):
            batch = _on(_device(self.model), batch)
            asked = batch.targets != UNASKED
        with self._stage("gradient"):
            self.model.train()
            loss = F.cross_entropy(self.model(batch.tokens, asked), batch.targets[asked])
            self._optimiser.zero_grad()
            loss.backward()
        with self._stage("optimise"):
            norm = gradient_step(self._optimiser, self.learning_rate, self.config.clip)
            if self._average and math.isfinite(norm):
                self._average.update_parameters(self.model)
            self.updates += 1
            return {
                "step": self.updates,
                "epoch": self.epoch,
                "total_loss": loss.item(),
                "gradient_norm": norm,
                "positions": batch.tokens.numel(),
            }

    def state_dict(self) -> dict[str, Any]:
        """Return plain values and tensors."""
        counters = {name: getattr(self, name) for name in _COUNTERS}
        state = {"optimiser": self._optimiser.state_dict(), "counters": counters}
        return state | ({"average": self._average.state_dict()} if self._average else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`; the model's weights are loaded separately."""
        self._optimiser.load_state_dict(state["optimiser"])
        if self._average:
            self._average.load_state_dict(state["average"])
        counters = {"solved": 0} | state["counters"]  # older checkpoints lack `solved`
        for name in _COUNTERS:
            setattr(self, name, counters[name])

    def _batches(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(1_000_003 * self._seed + self.epoch)
        pool = POOL if self.config.similar_lengths else 1
        return shuffled_batches(self._train.lengths, self.config.batch_size, generator, pool)

    def _measure(self) -> dict[str, Any]:
        with self._stage("test"):
            held_out = evaluate(self.measured, self._valid, self._blank, SCORED_AT_ONCE)
        better = held_out.score > self.best_score
        self.best_score = max(self.best_score, held_out.score)
        self.stale_epochs = 0 if better else self.stale_epochs + 1
        self.solved = self.solved + 1 if held_out.sequence_accuracy == 1 else 0
        measured = {f"valid_{name}": value for name, value in held_out._asdict().items()}
        return measured | {"score": held_out.score}


_COUNTERS = ("updates", "epoch", "position", "stale_epochs", "solved", "best_score")


def _device(model: SequenceModel) -> torch.device:
    return model.output.weight.device


def _on(device: torch.device, batch: Batch) -> Batch:
    return Batch(*(tensor.to(device) for tensor in batch))
