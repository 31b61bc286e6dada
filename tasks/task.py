"""What every sequence task is: words in, at some positions an answer asked for.

A task draws samples one by one; `tasks/sequences.py` makes data sets of them.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import ClassVar, NamedTuple

BAR = 12  # characters
Machine = Callable[[Sequence[str]], list[str | None]]  # words -> an answer at each, or None
UNASKED = -100  # a target where no answer is asked for: what torch's cross-entropy leaves out


class Sample(NamedTuple):
    """One sequence: a word and a target at every position, as numbers."""

    tokens: tuple[int, ...]  # positions in `Task.words`
    targets: tuple[int, ...]  # positions in `Task.answers`, or UNASKED


class Statistic(NamedTuple):
    """One line about a data set, beside what the paper says of its own."""

    name: str
    ours: str
    paper: str


class Task(abc.ABC):
    """Subclasses are frozen dataclasses whose fields are the task's settings."""

    name: ClassVar[str]
    command: ClassVar[str] = ""  # that trains on it; empty: it has the task's name
    splits: ClassVar[tuple[str, ...]] = ("train", "valid", "test")
    has_lengths: ClassVar[bool] = False  # whether a sequence's length can be chosen
    blank: ClassVar[int | None] = None  # the answer for "none here"; not counted as an answer

    @classmethod
    def trained_by(cls) -> str:
        """The command that trains on the task."""
        return cls.command or cls.name

    @abc.abstractmethod
    def check(self) -> None:
        """Raises a one-line `ValueError` for settings that cannot work."""

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
        """Draws one sequence."""

    def sample_of(self, split: str, random: Random) -> Sample:
        """Draws one sequence of a split; all splits are alike unless a task says otherwise."""
        return self.sample(random)

    def sample_of_length(self, length: int, random: Random) -> Sample:
        """Draws one sequence of this length, if the task `has_lengths`."""
        raise NotImplementedError

    def rivals(self) -> Mapping[str, Machine]:
        """Machines that the task is meant to tell apart from the right one, by what they are."""
        return {}

    def every(self, split: str) -> list[Sample] | None:
        """All sequences of a split that has so few of them that each is taken; else None."""
        return None

    @abc.abstractmethod
    def small(self) -> "Task":
        """The same question with sequences a quarter as long or so, for two cores."""

    @abc.abstractmethod
    def statistics(self, samples: Sequence[Sample]) -> list[Statistic]:
        """What a data set is like, beside the paper's."""


def spread(lengths: Sequence[int]) -> str:
    """`min / mean / max`."""
    return f"{min(lengths)} / {sum(lengths) / len(lengths):.1f} / {max(lengths)}"


def distribution(values: Sequence[int], names: Sequence[str]) -> list[Statistic]:
    """A line for every answer: its share of all, and a bar, which is longest for the commonest."""
    counts = [list(values).count(value) for value in range(len(names))]
    lines = []
    for name, count in zip(names, counts, strict=True):
        bar = "█" * round(BAR * count / max(counts))
        lines.append(Statistic(f"value {name}", f"{bar} {100 * count / len(values):4.1f} %", ""))
    return lines


def share_of_commonest(values: Sequence[object]) -> float:
    """How often the commonest value comes, of 1: what always giving that answer would score."""
    return max(map(list(values).count, set(values))) / len(values)
