"""Sequences: splits are disjoint and reproducible, batches are complete, padding is not asked."""

from random import Random

import pytest
import torch

from fastweights.tasks import LANGUAGES, UNASKED, CodeExecution, ListOps
from fastweights.tasks.sequences import Sequences, draw_splits, shuffled_batches, sorted_batches

SIZES = dict(zip(ListOps.splits, (30, 10, 20), strict=True))


@pytest.mark.parametrize(
    "task", [CodeExecution(statements=4), ListOps(depth=2)], ids=lambda task: task.name
)
def test_flat_storage_keeps_every_sample(task):
    random = Random(0)
    samples = [task.sample(random) for _ in range(20)]
    assert Sequences.of(samples).samples() == samples


@pytest.mark.parametrize("task", [CodeExecution(), ListOps()], ids=lambda task: task.name)
def test_a_task_whose_lengths_cannot_be_chosen_says_so(task):
    for asked in (task.size_up_to, lambda length: task.sample_of_length(length, Random(1))):
        with pytest.raises(ValueError, match=f"the lengths of {task.name} cannot be chosen"):
            asked(20)


def test_splits_share_no_sequence_and_come_again_with_the_seed():
    task = ListOps(depth=1)
    sizes = dict(
        zip(task.splits, (100, 50, 50), strict=True)
    )  # so many that splits drawn separately would share sequences
    splits = draw_splits(task, sizes, seed=3)
    tokens = [sample.tokens for split in splits.values() for sample in split.samples()]
    assert [len(split.lengths) for split in splits.values()] == list(sizes.values())
    assert len(set(tokens)) == len(tokens)
    again, other = draw_splits(task, sizes, seed=3), draw_splits(task, sizes, seed=4)
    assert all(torch.equal(splits[name].tokens, again[name].tokens) for name in task.splits)
    assert splits["train"].samples() != other["train"].samples()


def test_a_larger_training_split_begins_with_the_smaller():
    task = CodeExecution(statements=10)
    small, large = (draw_splits(task, {"train": size}, 1)["train"].samples() for size in (5, 9))
    assert large[:5] == small


def test_too_few_different_sequences():
    tiny = CodeExecution(variables=1, statements=2)  # x = 0..9 ; print x
    with pytest.raises(
        ValueError,
        match=r"^[a-z_]+ \([a-z_]+ \d.*\) has too few different sequences: 10 found, 60 requested",
    ):
        draw_splits(tiny, SIZES, seed=1)


@pytest.mark.parametrize(
    "task", [ListOps(depth=2), LANGUAGES["parity"]()], ids=("one answer", "an answer everywhere")
)
def test_a_batch_is_the_sequences_and_unasked_filling(task):
    samples = draw_splits(task, {"train": 12}, 1)["train"].samples()
    chosen = torch.tensor([7, 2, 11])
    tokens, targets = Sequences.of(samples).batch(chosen)
    for column, number in enumerate(chosen.tolist()):
        length = len(samples[number].tokens)
        assert tuple(tokens[:length, column].tolist()) == samples[number].tokens
        assert tuple(targets[:length, column].tolist()) == samples[number].targets
        assert (targets[length:, column] == UNASKED).all()
    assert len(tokens) == max(len(samples[number].tokens) for number in chosen.tolist())


@pytest.mark.parametrize("count", [1, 64, 1000])
def test_every_sequence_comes_once_an_epoch(count):
    lengths = torch.randint(10, 100, (count,))
    generator = torch.Generator().manual_seed(1)
    for batches in (shuffled_batches(lengths, 32, generator), sorted_batches(lengths, 32)):
        assert torch.cat(batches).sort().values.tolist() == list(range(count))
        assert max(map(len, batches)) <= 32


def test_batches_are_of_similar_lengths_and_differ_between_epochs():
    lengths = torch.randint(10, 100, (1000,))
    generator = torch.Generator().manual_seed(1)
    one, other = (shuffled_batches(lengths, 20, generator) for _ in range(2))
    filled = sum(lengths[batch].max() * len(batch) for batch in one)
    assert filled < 1.1 * lengths.sum()
    assert not all(map(torch.equal, one, other))
    means = torch.stack([lengths[batch].float().mean() for batch in one])
    assert means.diff().gt(0).float().mean().sub(0.5).abs() < 0.2  # not sorted by length
