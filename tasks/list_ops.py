"""Sequential ListOps: read a nested list of operations once and give its value at the last bracket.

    [MAX 6 1 [FIRST 2 3 ] 0 [MIN 4 7 1 ] ]  ->  6, at depth 2

An operation has 2 to 5 arguments. Each is an operation with probability 1/4, otherwise a digit. A
tree is kept if its operations nest exactly `depth` deep. Only the last position has a target.
Source: Irie et al. 2021, section 4.3 and appendix B.3, after Nangia & Bowman 2018.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean
from typing import ClassVar

from fastweights.tasks.task import (
    UNASKED,
    Sample,
    Statistic,
    Task,
    distribution,
    length_range,
    share_of_commonest,
)

OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[FIRST": lambda values: values[0],
}
END = "]"
DIGITS = tuple("0123456789")
OPERATION_SHARE = 0.25  # probability that an argument is an operation
DEEPEST = 19  # below the 19th operation, the published generator draws only digits
RAREST = 1e-4  # smallest share of trees kept; below it, 1,000 sequences take minutes to hours
PAPER_LENGTHS = {10: "37 / 98 / 364", 15: "61 / 185 to 190 / 676"}


def shallow_value(words: Sequence[str], level: int) -> int | None:
    """Return a list's value without operations below `level`; None if nothing else is left."""
    open_lists: list[tuple[str, list[int]]] = []
    for word in words:
        if word in OPERATIONS:
            open_lists.append((word, []))
        elif word != END:
            open_lists[-1][1].append(int(word))
        else:
            depth = len(open_lists)
            operation, values = open_lists.pop()
            value = OPERATIONS[operation](values) if values and depth <= level else None
            if not open_lists:
                return value
            if value is not None:
                open_lists[-1][1].append(value)
    raise ValueError("the list has no end")


@dataclass(frozen=True, kw_only=True)
class ListOps(Task):
    """Lists whose operations nest exactly `depth` deep."""

    depth: int = 10
    """Nesting depth, 1 to 19; the paper uses 10 and 15."""
    max_arguments: int = 5
    """Maximum number of arguments of an operation, 2 to 5."""

    name: ClassVar[str] = "list_ops"

    def check(self) -> None:
        if not 1 <= self.depth <= DEEPEST:
            raise ValueError(
                f"--depth must lie in [1, {DEEPEST}] (deeper trees are never drawn), not "
                f"{self.depth}"
            )
        if not 2 <= self.max_arguments <= 5:
            raise ValueError(f"--max-arguments must lie in [2, 5], not {self.max_arguments}")
        if self.share < RAREST:
            raise ValueError(
                f"only one in {1 / self.share:,.0f} lists with at most {self.max_arguments} "
                f"arguments nests {self.depth} deep: increase --max-arguments, or reduce --depth"
            )

    @property
    def share(self) -> float:
        """The fraction of drawn trees that nest exactly `depth` deep."""
        return self._share_at_most(self.depth) - self._share_at_most(self.depth - 1)

    def _share_at_most(self, depth: int) -> float:
        """Return the fraction of drawn trees that nest at most `depth` deep."""
        counts, share = range(2, self.max_arguments + 1), 0.0
        for level in range(depth, 0, -1):
            argument = 1 - OPERATION_SHARE * (1 - share) if level < DEEPEST else 1.0
            share = fmean(argument**count for count in counts)
        return share

    @property
    def words(self) -> tuple[str, ...]:
        return (*OPERATIONS, END, *DIGITS)

    @property
    def answers(self) -> tuple[str, ...]:
        return DIGITS

    def sample(self, random: Random) -> Sample:
        while True:
            words: list[str] = []
            grown = self._grow(random, words, 1)
            if grown is not None and grown[1] == self.depth:
                numbers = {word: number for number, word in enumerate(self.words)}
                unasked = (UNASKED,) * (len(words) - 1)
                return Sample(tuple(map(numbers.__getitem__, words)), (*unasked, grown[0]))

    def small(self) -> "ListOps":
        return replace(self, depth=max(1, self.depth // 2))

    def statistics(self, samples: Sequence[Sample]) -> list[Statistic]:
        values = [sample.targets[-1] for sample in samples]
        roots = [sample.tokens[0] for sample in samples]
        of_root = [
            [value for value, other in zip(values, roots, strict=True) if other == root]
            for root in sorted(set(roots))
        ]
        knowing_root = sum(share_of_commonest(part) * len(part) for part in of_root) / len(values)
        return [
            Statistic(
                "length, min / mean / max",
                length_range([len(sample.tokens) for sample in samples]),
                PAPER_LENGTHS.get(self.depth, ""),
            ),
            Statistic("commonest value", f"{100 * share_of_commonest(values):.1f} %", ""),
            Statistic("commonest value, root known", f"{100 * knowing_root:.1f} %", ""),
            *(
                Statistic(
                    f"value without what is below level {level}", self._shallow(level, samples), ""
                )
                for level in range(1, min(3, self.depth - 1) + 1)
            ),
            *distribution(values, self.answers),
        ]

    def _shallow(self, level: int, samples: Sequence[Sample]) -> str:
        """Return the accuracy of a reader that ignores operations below `level`."""
        found = (shallow_value([self.words[n] for n in each.tokens], level) for each in samples)
        pairs = zip(found, samples, strict=True)
        return f"{100 * fmean(value == sample.targets[-1] for value, sample in pairs):.1f} %"

    def _grow(self, random: Random, words: list[str], level: int) -> tuple[int, int] | None:
        """Append an operation; return its value and deepest level, or None if it is too deep."""
        operation, values, deepest = random.choice(tuple(OPERATIONS)), [], level
        words.append(operation)
        for _ in range(random.randint(2, self.max_arguments)):
            if level == DEEPEST or random.random() >= OPERATION_SHARE:
                words.append(random.choice(DIGITS))
                values.append(int(words[-1]))
                continue
            inner = self._grow(random, words, level + 1) if level < self.depth else None
            if inner is None:
                return None
            values.append(inner[0])
            deepest = max(deepest, inner[1])
        words.append(END)
        return OPERATIONS[operation](values), deepest
