"""Accuracies of memoryless baselines and of a task's rival machines."""

from collections import Counter
from collections.abc import Callable, Sequence

from fastweights.tasks.sequences import Sequences
from fastweights.tasks.task import UNASKED, Sample, Task

Guess = Callable[[Sample], Sequence[int]]  # returns the number of an answer for every position


def baseline_accuracies(
    task: Task, learned: Sequences, tested: Sequences
) -> dict[str, dict[str, float]]:
    """Return the accuracies of each baseline on `tested`, by the baseline's name.

    The first baseline always gives the most common answer in `learned`; the second gives the most
    common answer after each word. The others are the task's `rivals`.
    """
    samples = tested.samples()
    guesses = _commonest(task, learned.samples()) | _rivals(task)
    return {name: _accuracies(task, guess, samples) for name, guess in guesses.items()}


def _commonest(task: Task, samples: Sequence[Sample]) -> dict[str, Guess]:
    pairs = [
        (word, target)
        for sample in samples
        for word, target in zip(*sample, strict=True)
        if target not in (UNASKED, task.blank)
    ]
    always = Counter(target for _, target in pairs).most_common(1)[0][0]
    counts = Counter(pairs)
    after = dict.fromkeys(range(len(task.words)), always)
    for (word, target), _ in reversed(counts.most_common()):  # the most common comes last and wins
        after[word] = target
    return {
        "always the commonest answer": lambda sample: [always] * len(sample.tokens),
        "the commonest answer after each word": lambda s: [after[word] for word in s.tokens],
    }


def _rivals(task: Task) -> dict[str, Guess]:
    numbers = {answer: number for number, answer in enumerate(task.answers)}

    def guess(machine: Callable[[Sequence[str]], list[str | None]], sample: Sample) -> list[int]:
        answers = machine([task.words[token] for token in sample.tokens])
        return [UNASKED if answer is None else numbers[answer] for answer in answers]

    rivals = task.rivals().items()
    return {name: lambda sample, one=machine: guess(one, sample) for name, machine in rivals}


def _accuracies(task: Task, guess: Guess, samples: Sequence[Sample]) -> dict[str, float]:
    right_sequences = right_answers = answers = 0
    for sample in samples:
        pairs = [p for p in zip(guess(sample), sample.targets, strict=True) if p[1] != UNASKED]
        right_sequences += all(guessed == target for guessed, target in pairs)
        asked = [pair for pair in pairs if pair[1] != task.blank]
        right_answers += sum(guessed == target for guessed, target in asked)
        answers += len(asked)
    return {
        "sequence_accuracy": right_sequences / len(samples),
        "answer_accuracy": right_answers / answers,
    }
