"""The interface of all sequence tasks: a word at every position, an answer at some of them.

A task draws samples one by one; `tasks/sequences.py` builds data sets from them.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from random import Random
from typing import Any, ClassVar, NamedTuple

BAR = 12  # characters of the longest bar
Machine = Callable[[Sequence[str]], list[str | None]]  # words -> an answer or None for each word
UNASKED = -100  # target where no answer is asked; torch's cross-entropy ignores it


class Sample(NamedTuple):
    """One sequence: the numbers of a word and a target for every position."""

    tokens: tuple[int, ...]  # indices into `Task.words`
    targets: tuple[int, ...]  # indices into `Task.answers`, or UNASKED


class Statistic(NamedTuple):
    """One statistic of a data set, beside the figure for the paper's data."""

    name: str
    ours: str
    paper: str


class Task(abc.ABC):
    """Abstract: a sequence task; subclasses are frozen dataclasses whose fields are settings."""

    name: ClassVar[str]
    command: ClassVar[str] = ""  # command that trains on the task; empty: the task's name
    splits: ClassVar[tuple[str, ...]] = ("train", "valid", "test")
    has_lengths: ClassVar[bool] = False  # whether a sequence's length can be chosen
    one_a_size: ClassVar[bool] = False  # whether there is exactly one sequence per size
    blank: ClassVar[int | None] = None  # answer that means "none"; not counted as an answer

    def __str__(self) -> str:
        """Return the name and the settings: `code_execution (variables 3, statements 100)`."""
        values = [(field.name, getattr(self, field.name)) for field in fields(self)]
        settings = [_in_words(name, value) for name, value in values if value is not False]
        return f"{self.name} ({', '.join(settings)})"

    @classmethod
    def trained_by(cls) -> str:
        """Return the command that trains on the task."""
        return cls.command or cls.name

    @abc.abstractmethod
    def check(self) -> None:
        """Raise a one-line `ValueError` for an invalid setting."""

    @property
    @abc.abstractmethod
    def words(self) -> tuple[str, ...]:
        """The input vocabulary."""

    @property
    @abc.abstractmethod
    def answers(self) -> tuple[str, ...]:
        """The output vocabulary."""

    @abc.abstractmethod
    def sample(self, random: Random) -> Sample:
        """Draw one sequence."""

    def sample_of(self, split: str, random: Random) -> Sample:
        """Draw one sequence of a split; all splits have one distribution unless overridden."""
        return self.sample(random)

    def sample_of_length(self, length: int, random: Random) -> Sample:
        """Draw one sequence of size `size_up_to(length)`, which may raise `ValueError`."""
        raise ValueError(f"the lengths of {self.name} cannot be chosen")

    def size_up_to(self, length: int) -> int:
        """Return the size that `sample_of_length` draws.

        Raises:
            ValueError: the task has no such size, or `has_lengths` is false; one line.
        """
        raise ValueError(f"the lengths of {self.name} cannot be chosen")

    def rivals(self) -> Mapping[str, Machine]:
        """Return wrong machines that the task must distinguish from the correct one, by name."""
        return {}

    def every(self, split: str) -> list[Sample] | None:
        """Return every sequence of a split if there are few enough to list; else None."""
        return None

    @abc.abstractmethod
    def small(self) -> "Task":
        """Return the task with shorter sequences, to train on two CPU cores in minutes."""

    @abc.abstractmethod
    def statistics(self, samples: Sequence[Sample]) -> list[Statistic]:
        """Return statistics of a data set, beside the paper's."""


def length_range(lengths: Sequence[int]) -> str:
    """Return `min / mean / max`."""
    return f"{min(lengths)} / {sum(lengths) / len(lengths):.1f} / {max(lengths)}"


def distribution(values: Sequence[int], names: Sequence[str]) -> list[Statistic]:
    """Return one line per answer: its share, and a bar that is longest for the most common."""
    counts = [list(values).count(value) for value in range(len(names))]
    lines = []
    for name, count in zip(names, counts, strict=True):
        bar = "█" * round(BAR * count / max(counts))
        lines.append(Statistic(f"value {name}", f"{bar} {100 * count / len(values):4.1f} %", ""))
    return lines


def share_of_commonest(values: Sequence[object]) -> float:
    """Return the fraction of the most common value: the accuracy of always answering with it."""
    return max(map(list(values).count, set(values))) / len(values)


def _in_words(name: str, value: Any) -> str:
    several = value if isinstance(value, tuple) else (value,)
    return name if value is True else f"{name} {' '.join(map(str, several))}"
