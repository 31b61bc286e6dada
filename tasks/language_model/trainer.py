"""Training of a language model on parallel columns of the text, one span of each per update.

The text is cut into one column per batch element. An update reads the next span of each column and
predicts every next token. With full context, the state is carried from span to span, without
gradient, and reset at the start of an epoch. Otherwise every span starts from a fresh state.
Source: Irie et al. 2021, appendix A.1; the schedule and the columns are Transformer-XL's.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastweights.host import BATCH, COUNT, NOT_NEGATIVE, POSITIVE, check_range, check_ranges
from fastweights.kernels import refilled, tensors_of
from fastweights.tasks.gradient_step import gradient_step
from fastweights.tasks.language_model.model import LanguageModel, ModelState, detached


@dataclass(frozen=True, kw_only=True)
class LanguageTrainerConfig:
    """Options for training a language model, with the published defaults."""

    updates: int = 500_000
    """Number of updates; over these, the learning rate follows a cosine to 0."""
    learning_rate: float = 2.5e-4
    """Maximum learning rate of Adam."""
    warm_up: int = 2_000
    """Number of updates over which the learning rate rises from 0."""
    clip: float = 0.25
    """Maximum gradient norm; 0: no limit."""
    columns: int = 96
    """Number of columns that the text is cut into: the batch size, over all learners."""
    micro_columns: int = 0
    """Number of columns per backward pass; gradients are accumulated. 0: all."""
    span: int = 256
    """Number of tokens per column and update; gradients reach back at most this far."""
    full_context: bool = False
    """Carry fast weights and recurrent state from span to span."""

    def check(self) -> None:
        """Raise a one-line `ValueError` for an invalid value."""
        check_ranges(self, COUNT, "updates", "span")
        check_ranges(self, NOT_NEGATIVE, "warm_up", "micro_columns", "clip")
        check_range("columns", self.columns, BATCH)
        check_range("learning_rate", self.learning_rate, POSITIVE)

    def note(self) -> str:
        """Return a line if the warm-up is not shorter than the training; else ""."""
        if self.warm_up < self.updates:
            return ""
        return (
            f"note: --warm-up {self.warm_up:,} exceeds --updates {self.updates:,}: the learning "
            f"rate ends at {self.rate(self.updates):.2g} and is never lowered"
        )

    def rate(self, update: int) -> float:
        """Return the learning rate of an update, counted from 1."""
        if update <= self.warm_up:
            return self.learning_rate * update / self.warm_up
        return self.learning_rate * (1 + math.cos(math.pi * update / self.updates)) / 2


class Columns:
    """The tokens of a text in columns of equal length; a learner reads its share of the columns.

    Tokens left over at the end of the text are not read.

    Raises:
        ValueError: the text is too short for the columns; one line.
    """

    def __init__(self, ids: np.ndarray, columns: int, share: range | None = None):
        length = len(ids) // columns
        if length < 2:
            raise ValueError(
                f"--columns {columns} is too many for {len(ids):,} tokens: at most {len(ids) // 2}"
            )
        share = range(columns) if share is None else share
        self.ids = ids[: columns * length].reshape(columns, length)[share.start : share.stop]
        self.length = length - 1  # predictions per column

    def __len__(self) -> int:
        return len(self.ids)

    def piece(self, offset: int, span: int) -> tuple[Tensor, Tensor]:
        """Return tokens and their next tokens, each [span, columns]; shorter at the end."""
        end = min(offset + span, self.length)
        piece = torch.from_numpy(self.ids[:, offset : end + 1].astype(np.int64)).t()
        return piece[:-1], piece[1:]


class Together(NamedTuple):
    """The communication between learners; by default there is one learner and none is needed."""

    share: range | None = None  # this learner's columns
    rank: int = 0
    sum: Callable[[Sequence[Tensor]], None] = lambda tensors: None  # in-place sum over all learners


class LanguageTrainer:
    """The training of a model; `state_dict` has everything to resume it except the weights.

    The seed, the update and the learner's rank determine the dropout masks. `precision()` wraps the
    model's computations; `stage(name)` wraps transfer, gradient, exchange and optimise.
    """

    def __init__(
        self,
        model: LanguageModel,
        ids: np.ndarray,
        config: LanguageTrainerConfig,
        seed: int,
        together: Together | None = None,
        precision: Callable[[], AbstractContextManager[object]] = nullcontext,
        stage: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ):
        config.check()
        self.model, self.config, self._seed = model, config, seed
        self._together = together or Together()
        self._columns = Columns(ids, config.columns, self._together.share)
        self._precision, self._stage = precision, stage
        self._optimiser = torch.optim.Adam(
            model.parameters(), lr=config.learning_rate, betas=(0.9, 0.999), fused=True
        )
        self.updates = self.epoch = self.offset = 0
        self._states: list[ModelState | None] = [None] * len(self._parts())

    @property
    def finished(self) -> bool:
        """Whether all updates are done."""
        return self.updates >= self.config.updates

    @property
    def updates_an_epoch(self) -> int:
        """The number of updates per epoch: enough to read the text once."""
        return -(-self._columns.length // self.config.span)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Update until training ends; yield the log row of each update."""
        while not self.finished:
            yield self.update()

    def update(self) -> dict[str, Any]:
        """Take one Adam step on the next span of every column; return its log row."""
        config, device = self.config, self.model.softmax.weight.device
        with self._stage("transfer"):
            tokens, targets = self._columns.piece(self.offset, config.span)
            tokens, targets = tokens.to(device), targets.to(device)
        count = len(tokens) * config.columns
        with self._stage("gradient"):
            self._seed_dropout()
            self.model.train()
            self._optimiser.zero_grad(set_to_none=False)
            loss = self._add_gradients(tokens, targets, count)
        with self._stage("exchange"):
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            self._together.sum([*gradients, loss])
        with self._stage("optimise"):
            rate = config.rate(self.updates + 1)
            norm = gradient_step(self._optimiser, rate, config.clip)
            row = {"epoch": self.epoch, "total_loss": loss.item(), "gradient_norm": norm}
        self._advance(len(tokens))
        row["perplexity"] = math.exp(min(row["total_loss"], 700))
        return {"step": self.updates, **row, "learning_rate": rate, "positions": count}

    def state_dict(self) -> dict[str, Any]:
        """Return plain values and tensors, equal in all learners; all learners must call this."""
        counters = {name: getattr(self, name) for name in _COUNTERS}
        return {
            "optimiser": self._optimiser.state_dict(),
            "counters": counters,
            "state": self._states_of_all(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`; the model's weights are loaded separately."""
        self._optimiser.load_state_dict(state["optimiser"])
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        share = self._together.share or range(self.config.columns)
        own = [tensor[share.start : share.stop] for tensor in state["state"]]
        for number, part in enumerate(self._parts()):
            rows = [tensor[part.start : part.stop] for tensor in own]
            self._states[number] = self._filled(part, rows) if own else None

    def _parts(self) -> list[range]:
        """Return the ranges of columns that are computed together."""
        most = self.config.micro_columns or len(self._columns)
        return [
            range(start, min(start + most, len(self._columns)))
            for start in range(0, len(self._columns), most)
        ]

    def _add_gradients(self, tokens: Tensor, targets: Tensor, count: int) -> Tensor:
        """Accumulate the gradients of all parts; return this learner's share of the mean loss."""
        total = torch.zeros((), device=tokens.device)
        for number, part in enumerate(self._parts()):
            of_part = slice(part.start, part.stop)
            with self._precision():
                losses, state = self.model.loss(
                    tokens[:, of_part], targets[:, of_part], self._states[number]
                )
                loss = losses.sum() / count
            loss.backward()
            total += loss.detach()
            self._states[number] = detached(state) if self.config.full_context else None
        return total

    def _advance(self, read: int) -> None:
        self.updates, self.offset = self.updates + 1, self.offset + read
        if self.offset >= self._columns.length:
            self.epoch, self.offset = self.epoch + 1, 0
            self._states = [None] * len(self._states)

    def _seed_dropout(self) -> None:
        words = np.random.SeedSequence([self._seed, self.updates, self._together.rank])
        torch.manual_seed(int(words.generate_state(1, np.uint64)[0] >> np.uint64(1)))

    def _states_of_all(self) -> list[Tensor]:
        """Return the state's tensors with the columns of all learners; [] for a fresh state."""
        if any(state is None for state in self._states):
            return []
        of_parts = map(tensors_of, self._states)
        share = self._together.share or range(self.config.columns)
        whole = []
        for parts in zip(*of_parts, strict=True):
            own = torch.cat(parts)
            tensor = own.new_zeros(self.config.columns, *own.shape[1:])
            tensor[share.start : share.stop] = own
            whole.append(tensor)
        self._together.sum(whole)
        return whole

    def _filled(self, part: range, tensors: Sequence[Tensor]) -> ModelState:
        fresh = self.model.initial_state(len(part))
        pairs = zip(tensors, tensors_of(fresh), strict=True)
        return refilled(fresh, [tensor.to(model) for tensor, model in pairs])


_COUNTERS = ("updates", "epoch", "offset")
