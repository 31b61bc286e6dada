"""Data sets of a task: splits without a sequence in common, stored flat, batched by length."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from fastweights.tasks.task import UNASKED, Sample, Task

SPLITS = ("train", "valid", "test")
DRAWS_FOR_A_NEW_ONE = 1000  # before a space of sequences counts as used up


class Batch(NamedTuple):
    """Sequences side by side, the shorter ones filled up at their end with unasked positions."""

    tokens: Int[Tensor, "T B"]
    targets: Int[Tensor, "T B"]


class Sequences(NamedTuple):
    """Many sequences behind one another."""

    tokens: Int[Tensor, " S"]  # int16
    targets: Int[Tensor, " S"]  # int16
    lengths: Int[Tensor, " N"]  # int64

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Sequences":
        """Store samples of words and answers flat, one after the other."""
        tokens = [token for sample in samples for token in sample.tokens]
        targets = [target for sample in samples for target in sample.targets]
        return cls(
            torch.tensor(tokens, dtype=torch.int16),
            torch.tensor(targets, dtype=torch.int16),
            torch.tensor([len(sample.tokens) for sample in samples]),
        )

    def samples(self) -> list[Sample]:
        """The inverse of `of`."""
        parts = (
            self.tokens.split(self.lengths.tolist()),
            self.targets.split(self.lengths.tolist()),
        )
        return [
            Sample(tuple(tokens.tolist()), tuple(targets.tolist()))
            for tokens, targets in zip(*parts, strict=True)
        ]

    def batch(self, chosen: Int[Tensor, " B"]) -> Batch:
        """The sequences with these numbers."""
        lengths = self.lengths[chosen]
        starts = (self.lengths.cumsum(0) - self.lengths)[chosen]
        positions = torch.arange(int(lengths.max()))[:, None]
        filled = positions >= lengths
        where = (starts + positions).masked_fill(filled, 0)
        return Batch(
            self.tokens[where].long().masked_fill(filled, 0),
            self.targets[where].long().masked_fill(filled, UNASKED),
        )


def draw(
    task: Task,
    sizes: Mapping[str, int],
    seed: int,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Sequences]:
    """Draws `sizes[split]` sequences of each split, no sequence twice; `tick` after each.

    Raises a one-line `ValueError` for impossible settings or too few different sequences.
    """
    task.check()
    seen: set[tuple[int, ...]] = set()
    splits = {}
    for split, size in sizes.items():
        random, samples = Random(f"{seed} {split}"), []
        for _ in range(size):
            samples.append(_new_one(task, random, seen, sum(sizes.values())))
            tick()
        splits[split] = Sequences.of(samples)
    return splits


def _new_one(task: Task, random: Random, seen: set[tuple[int, ...]], wanted: int) -> Sample:
    for _ in range(DRAWS_FOR_A_NEW_ONE):
        sample = task.sample(random)
        if sample.tokens not in seen:
            seen.add(sample.tokens)
            return sample
    raise ValueError(
        f"{task} has too few different sequences: {len(seen)} found, {wanted} wanted; ask for "
        "fewer or for longer ones"
    )


def shuffled_batches(
    lengths: Int[Tensor, " N"], batch_size: int, generator: torch.Generator, pool: int = 16
) -> list[Int[Tensor, " B"]]:
    """Every sequence once, in batches of similar lengths and random order.

    Sequences are shuffled, sorted by length within pools of `pool` batches, and the batches
    shuffled: little filling, and other company in each epoch. The last batch of a pool may be
    smaller.
    """
    order = torch.randperm(len(lengths), generator=generator)
    batches = [
        batch
        for part in order.split(pool * batch_size)
        for batch in part[lengths[part].argsort(stable=True)].split(batch_size)
    ]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator)]


def sorted_batches(lengths: Int[Tensor, " N"], batch_size: int) -> list[Int[Tensor, " B"]]:
    """Every sequence once, by length: for evaluation."""
    return list(lengths.argsort(stable=True).split(batch_size))
