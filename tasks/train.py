"""Training on sequences: one update a batch, the held-out split after each epoch.

Adam as published (Irie et al. 2021, appendix B.2 and its code): beta 0.9 and 0.995, epsilon 1e-9;
the loss is the mean cross-entropy over a batch's asked positions. What is held out chooses the
best epoch and ends training early; what is reported is a third split that training never sees.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastweights.tasks.sequence_model import SequenceModel
from fastweights.tasks.sequences import Batch, Sequences, shuffled_batches, sorted_batches
from fastweights.tasks.task import UNASKED

LARGEST_BATCH = 2**20  # sequences


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """How a model is trained on sequences."""

    learning_rate: float = 3e-4
    """Adam's; the paper has 3e-3 for the LSTM."""
    clip: float = 0.0
    """Largest norm of the gradient; 0: any. The paper has 0.1 for the LSTM."""
    batch_size: int = 64
    """Sequences in one update."""
    epochs: int = 200
    """At most."""
    patience: int = 0
    """Epochs without a better score on the held-out split before training ends; 0: all epochs."""

    def check(self) -> None:
        """Raises a one-line `ValueError` for numbers that cannot work."""
        for name in ("batch_size", "epochs"):
            if getattr(self, name) < 1:
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(f"{flag} must be at least 1, not {getattr(self, name)}")
        if self.batch_size > LARGEST_BATCH:
            raise ValueError(f"--batch-size must be at most {LARGEST_BATCH}")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"--learning-rate must be above 0, not {self.learning_rate}")
        for name in ("clip", "patience"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"--{name} must be at least 0, not {getattr(self, name)}")


class Result(NamedTuple):
    """How well a split is answered. `loss`: mean cross-entropy of asked positions, nats."""

    loss: float
    sequence_accuracy: float  # share of sequences with no wrong position, of 1
    answer_accuracy: float  # share of right answers, blanks left out, of 1

    @property
    def score(self) -> float:
        """What the best epoch is chosen by: the mean of both accuracies.

        The paper takes the first alone, which says nothing while no sequence is all right.
        """
        return (self.sequence_accuracy + self.answer_accuracy) / 2


@torch.no_grad()
def evaluate(
    model: SequenceModel, sequences: Sequences, blank: int | None, batch_size: int
) -> Result:
    """Answers every sequence; `blank` is the answer that means "none here"."""
    was_training = model.training
    model.eval()
    loss = asked = right_sequences = answers = right_answers = 0.0
    for chosen in sorted_batches(sequences.lengths, batch_size):
        batch = _on(_device(model), sequences.batch(chosen))
        where = batch.targets != UNASKED
        logits, targets = model(batch.tokens, where), batch.targets[where]
        right = logits.argmax(-1) == targets
        wrong_positions = torch.zeros_like(where).masked_scatter(where, ~right)
        is_answer = torch.ones_like(right) if blank is None else targets != blank
        loss += F.cross_entropy(logits, targets, reduction="sum").item()
        asked += len(targets)
        right_sequences += (~wrong_positions.any(0)).sum().item()
        answers += is_answer.sum().item()
        right_answers += (right & is_answer).sum().item()
    model.train(was_training)
    count = len(sequences.lengths)
    return Result(loss / asked, right_sequences / count, right_answers / answers)


class Trainer:
    """A model in training; whatever it needs to go on is in `state_dict`.

    `splits`: what is learned from and what is held out. The order of batches is `seed`'s alone.
    `stage(name)` is entered around transfer, gradient, optimise and test (of what is held out).
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
        self.updates = self.epoch = self.position = self.stale_epochs = 0
        self.best_score = -1.0

    @property
    def updates_an_epoch(self) -> int:
        return len(self._batches())

    @property
    def finished(self) -> bool:
        out_of_patience = 0 < self.config.patience <= self.stale_epochs
        return self.epoch >= self.config.epochs or out_of_patience

    def rows(self) -> Iterator[dict[str, Any]]:
        """One update after the other, to the end of training; yields each one's row.

        The row of an epoch's last update also has the held-out split's `valid_*` and `score`.
        """
        while not self.finished:
            batches = self._batches()
            for chosen in batches[self.position :]:
                row = self.update(self._train.batch(chosen))
                self.position += 1
                if self.position == len(batches):
                    row |= self._end_epoch()
                yield row

    def update(self, batch: Batch) -> dict[str, Any]:
        """One step of Adam on a batch; its loss, the norm of its gradient, its positions."""
        with self._stage("transfer"):
            batch = _on(_device(self.model), batch)
            asked = batch.targets != UNASKED
        with self._stage("gradient"):
            self.model.train()
            loss = F.cross_entropy(self.model(batch.tokens, asked), batch.targets[asked])
            self._optimiser.zero_grad()
            loss.backward()
        with self._stage("optimise"):
            largest = self.config.clip or float("inf")
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), largest)
            self._optimiser.step()
            self.updates += 1
            return {
                "step": self.updates,
                "epoch": self.epoch,
                "total_loss": loss.item(),
                "gradient_norm": norm.item(),
                "positions": batch.tokens.numel(),
            }

    def state_dict(self) -> dict[str, Any]:
        """Plain values and tensors."""
        counters = {name: getattr(self, name) for name in _COUNTERS}
        return {"optimiser": self._optimiser.state_dict(), "counters": counters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up what `state_dict` returned; the model's weights are loaded apart."""
        self._optimiser.load_state_dict(state["optimiser"])
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])

    def _batches(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(1_000_003 * self._seed + self.epoch)
        return shuffled_batches(self._train.lengths, self.config.batch_size, generator)

    def _end_epoch(self) -> dict[str, Any]:
        with self._stage("test"):
            held_out = evaluate(self.model, self._valid, self._blank, self.config.batch_size)
        self.epoch, self.position = self.epoch + 1, 0
        better = held_out.score > self.best_score
        self.best_score = max(self.best_score, held_out.score)
        self.stale_epochs = 0 if better else self.stale_epochs + 1
        measured = {f"valid_{name}": value for name, value in held_out._asdict().items()}
        return measured | {"score": held_out.score}


_COUNTERS = ("updates", "epoch", "position", "stale_epochs", "best_score")


def _device(model: SequenceModel) -> torch.device:
    return model.output.weight.device


def _on(device: torch.device, batch: Batch) -> Batch:
    return Batch(*(tensor.to(device) for tensor in batch))
