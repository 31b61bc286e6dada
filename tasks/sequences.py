"""Data sets of a task: splits that share no sequence, stored flat and batched by length."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from fastweights.tasks.task import UNASKED, Sample, Task

POSITIONS_AT_ONCE = 2**14  # largest number of positions in an evaluation batch; bounds its memory
POOL = 16  # batches that are sorted by length together
DRAWS_FOR_A_NEW_ONE = 1000  # attempts before a task is considered out of new sequences


class Batch(NamedTuple):
    """A batch of sequences; shorter ones are padded at the end, without answers."""

    tokens: Int[Tensor, "T B"]
    targets: Int[Tensor, "T B"]


class Sequences(NamedTuple):
    """Many sequences, concatenated."""

    tokens: Int[Tensor, " S"]  # int16
    targets: Int[Tensor, " S"]  # int16
    lengths: Int[Tensor, " N"]  # int64

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Sequences":
        """Concatenate samples."""
        tokens = [token for sample in samples for token in sample.tokens]
        targets = [target for sample in samples for target in sample.targets]
        return cls(
            torch.tensor(tokens, dtype=torch.int16),
            torch.tensor(targets, dtype=torch.int16),
            torch.tensor([len(sample.tokens) for sample in samples]),
        )

    @classmethod
    def join(cls, parts: Sequence["Sequences"]) -> "Sequences":
        """Concatenate `parts` in order."""
        return cls(*(torch.cat(same) for same in zip(*parts, strict=True)))

    def samples(self) -> list[Sample]:
        """Return the samples that `of` concatenated."""
        parts = (
            self.tokens.split(self.lengths.tolist()),
            self.targets.split(self.lengths.tolist()),
        )
        return [
            Sample(tuple(tokens.tolist()), tuple(targets.tolist()))
            for tokens, targets in zip(*parts, strict=True)
        ]

    def batch(self, chosen: Int[Tensor, " B"]) -> Batch:
        """Return the sequences with these indices as a padded batch."""
        lengths = self.lengths[chosen]
        starts = (self.lengths.cumsum(0) - self.lengths)[chosen]
        positions = torch.arange(int(lengths.max()))[:, None]
        filled = positions >= lengths
        where = (starts + positions).masked_fill(filled, 0)
        return Batch(
            self.tokens[where].long().masked_fill(filled, 0),
            self.targets[where].long().masked_fill(filled, UNASKED),
        )


def draw_splits(
    task: Task,
    sizes: Mapping[str, int],
    seed: int,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Sequences]:
    """Draw `sizes[split]` sequences for each split, all distinct; call `tick` after each.

    If a task has few sequences, a held-out split contains all of them, and training draws from its
    own with replacement.

    Raises:
        ValueError: impossible settings, or too few distinct sequences; one line.
    """
    task.check()
    seen: set[tuple[int, ...]] = set()
    splits = {}
    for split, size in sizes.items():
        random, samples, every = Random(f"{seed} {split}"), [], task.every(split)
        for place in range(size):
            if every is None:
                samples.append(_new_one(task, split, random, seen, sum(sizes.values())))
            else:
                samples.append(every[place] if size == len(every) else random.choice(every))
            tick()
        splits[split] = Sequences.of(samples)
    return splits


def split_sizes(task: Task, train: int, valid: int, test: int) -> dict[str, int]:
    """Return the number of sequences per split; splits after the first two are test splits."""
    sizes = dict.fromkeys(task.splits, test) | {"train": train, "valid": valid}
    few = {split: task.every(split) for split in task.splits if split != "train"}
    return sizes | {split: len(samples) for split, samples in few.items() if samples is not None}


def _new_one(
    task: Task, split: str, random: Random, seen: set[tuple[int, ...]], wanted: int
) -> Sample:
    for _ in range(DRAWS_FOR_A_NEW_ONE):
        sample = task.sample_of(split, random)
        if sample.tokens not in seen:
            seen.add(sample.tokens)
            return sample
    raise ValueError(
        f"{task} has too few different sequences: {len(seen)} found, {wanted} requested; request "
        "fewer or longer ones"
    )


def shuffled_batches(
    lengths: Int[Tensor, " N"], batch_size: int, generator: torch.Generator, pool: int = POOL
) -> list[Int[Tensor, " B"]]:
    """Return every sequence once, in batches of similar lengths and random order.

    Sequences are shuffled and sorted by length within pools of `pool` batches; then the batches are
    shuffled. This needs little padding, and batches differ between epochs. The last batch of a pool
    may be smaller. With a pool of one batch, a batch mixes all lengths.
    """
    order = torch.randperm(len(lengths), generator=generator)
    batches = [
        batch
        for part in order.split(pool * batch_size)
        for batch in part[lengths[part].argsort(stable=True)].split(batch_size)
    ]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator)]


def sorted_batches(lengths: Int[Tensor, " N"], batch_size: int) -> list[Int[Tensor, " B"]]:
    """Return every sequence once, sorted by length, for evaluation.

    A batch has `batch_size` sequences, or fewer if it would exceed `POSITIONS_AT_ONCE` positions.
    """
    batches: list[list[int]] = [[]]
    for place in lengths.argsort(stable=True).tolist():
        most = min(batch_size, max(1, POSITIONS_AT_ONCE // int(lengths[place])))
        if len(batches[-1]) >= most:
            batches.append([])
        batches[-1].append(place)
    return [torch.tensor(batch) for batch in batches]
