"""The interface of all formal languages: strings, and a machine that answers at every position.

A language is one file with its alphabet, a sampler if its strings are not uniform, and `step`, one
step of the machine that reads a string from left to right. The machine defines the targets; tests
compare it with an independent solution.

In some languages, questions (`?`) follow a string, one for each symbol of the answer, and the
targets are at the questions. Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy", use
this convention; here the model reads from left to right. A language that answers every prefix
instead, with `step_and_ask`, gives a model far more targets per string.

`--trace` plots the machine's state and groups positions by it. Integers and booleans are plotted as
counters, other values as labels. The parts of a tuple are plotted separately, under their names if
it is a NamedTuple. The class declares whether the state is a stack (`is_stack`), and which parts of
it are neither plotted nor used to group positions (`untraced`).
"""

import abc
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, pairwise
from random import Random
from typing import Any, ClassVar

from fastweights.host import did_you_mean
from fastweights.tasks.task import (
    UNASKED,
    Sample,
    Statistic,
    Task,
    length_range,
    share_of_commonest,
)

ASK = "?"
LARGEST_SIZE = 1_000_000  # a mistyped size gives an error, not hours of work


@dataclass(frozen=True, kw_only=True)
class Language(Task):
    """A language whose strings have sizes: their lengths, or the n of a^n b^n.

    Splits: `train` and `bin0` have sizes in `sizes`. `bin1` has larger sizes, up to twice the
    largest. `valid` selects the best weights and ends training. On average, half of its strings
    have sizes of `bin0` and half of `bin1`; none is in another split. For a language with one
    string of each size, `valid` has the strings of `bin0`, and those of the sizes after `bin1`, up
    to 2.2 times the largest of `sizes`.
    """

    sizes: tuple[int, int] = (2, 50)
    """Minimum and maximum size of the training strings and of Bin0. The size is the length; for
    a_n_b_n and a_n_b_n_c_n, it is n."""

    title: ClassVar[str]  # name for display, such as (aa)*
    command: ClassVar[str] = "formal_language"
    splits: ClassVar[tuple[str, ...]] = ("train", "valid", "bin0", "bin1")
    has_lengths: ClassVar[bool] = True
    alphabet: ClassVar[tuple[str, ...]]
    asks: ClassVar[bool] = False  # whether questions follow a string
    multiple: ClassVar[int] = 1  # all sizes are multiples of it
    start: ClassVar[Any] = 0  # the machine's state before the first symbol
    # Whether the state is a sequence that the machine stores, such as a stack from its bottom: a
    # string of one-letter symbols, or a plain tuple of symbols.
    is_stack: ClassVar[bool] = False
    # Names of fields of a NamedTuple that only determine which symbols may follow.
    untraced: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def step(self, state: Any, symbol: str) -> tuple[Any, str | None]:
        """Read a symbol; return the next state and the answer at this position (None if not asked).

        A state is hashable and of the kind that the class declares.
        """

    def draw(self, random: Random, size: int) -> Iterable[str]:
        """Draw a string of this size, without questions; by default, symbols are uniform."""
        return random.choices(self.alphabet, k=size)

    def questions(self, symbols: Sequence[str]) -> int:
        """Return how many questions follow these symbols."""
        return int(self.asks)

    def has(self, size: int) -> bool:
        """Return whether there are strings of this size."""
        return size > 0 and size % self.multiple == 0

    @classmethod
    def family(cls) -> str:
        """Return the class of the language, taken from the name of its folder."""
        return cls.__module__.split(".")[-2].replace("_", "-")

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.alphabet, ASK) if self.asks else self.alphabet

    def check(self) -> None:
        if len(self.sizes) != 2 or not 1 <= self.sizes[0] <= self.sizes[1] <= LARGEST_SIZE:
            given = " ".join(map(str, self.sizes))
            raise ValueError(
                "--sizes must be two sizes, the smaller first, above 0 and at most "
                f"{LARGEST_SIZE:,}, not {given}"
            )
        for low, high in (span for split in self.splits for span in self.spans(split)):
            self.sizes_in(low, high)
        self._check_state()

    def _check_state(self) -> None:
        """Raise a one-line `ValueError` if `start` is not of the kind that the class declares."""
        parts = getattr(self.start, "_fields", ())
        if self.is_stack and (parts or not isinstance(self.start, str | tuple)):
            raise ValueError(
                f"{self.name} has is_stack = True, so its state must be a string or a plain tuple, "
                f"not {self.start!r}"
            )
        if unknown := [name for name in self.untraced if name not in parts]:
            known = ", ".join(parts) or "none: its state is not a NamedTuple"
            raise ValueError(
                f"{self.name} leaves {unknown[0]!r} untraced; parts of its state: {known}"
            )

    def spans(self, split: str) -> list[tuple[int, int]]:
        """Return the minimum and maximum size of a split, for each of its one or two parts."""
        low, high = self.sizes
        longer = (high + 1, 2 * high)
        after = (2 * high + 1, 2 * high + max(high // 5, self.multiple))
        held_out = [(low, high), after if self.one_a_size else longer]
        return {"bin1": [longer], "valid": held_out}.get(split, [(low, high)])

    def sizes_in(self, low: int, high: int) -> list[int]:
        """Return the string sizes from `low` to `high`; raise `ValueError` if there are none."""
        if found := [size for size in range(low, high + 1) if self.has(size)]:
            return found
        raise ValueError(
            f"{self.name} has no strings of sizes {low} to {high}: its sizes are "
            f"{self._smallest_sizes()}; widen --sizes"
        )

    def string(self, random: Random, low: int, high: int) -> list[str]:
        """Return a string of a size from `low` to `high`, without questions."""
        return list(self.draw(random, random.choice(self.sizes_in(low, high))))

    def sample(self, random: Random) -> Sample:
        return self.sample_of("train", random)

    def sample_of(self, split: str, random: Random) -> Sample:
        return self.labelled(self.string(random, *random.choice(self.spans(split))))

    def sample_of_length(self, length: int, random: Random) -> Sample:
        """Return a string of the largest size up to `length` that the language has."""
        size = self.size_up_to(length)
        return self.labelled(self.string(random, size, size))

    def size_up_to(self, length: int) -> int:
        """Return the largest size up to `length` that the language has.

        Raises:
            ValueError: all sizes are larger; one line.
        """
        for size in range(length, 0, -1):
            if self.has(size):
                return size
        raise ValueError(
            f"{self.name} has no string of size {length} or smaller; its sizes are "
            f"{self._smallest_sizes()}"
        )

    def _smallest_sizes(self) -> str:
        """Return the three smallest sizes as text, such as `2, 4, 6, ...`."""
        return ", ".join(map(str, islice(filter(self.has, count(1)), 3))) + ", ..."

    def every(self, split: str) -> list[Sample] | None:
        if not self.one_a_size:
            return None
        sizes = [size for span in self.spans(split) for size in self.sizes_in(*span)]
        return [self.labelled(self.string(Random(0), size, size)) for size in sizes]

    def labelled(self, symbols: Sequence[str]) -> Sample:
        """Return the numbers of a string, its questions, and the machine's answers."""
        asked = self.with_questions(symbols)
        words = {word: number for number, word in enumerate(self.words)}
        answers = {answer: number for number, answer in enumerate(self.answers)}
        return Sample(
            tuple(words[symbol] for symbol in asked),
            tuple(UNASKED if a is None else answers[a] for _, a in self.run(asked)),
        )

    def with_questions(self, symbols: Sequence[str]) -> list[str]:
        """Append the questions for these symbols, unless they already contain questions."""
        return [*symbols, *[ASK] * (0 if ASK in symbols else self.questions(symbols))]

    def run(self, symbols: Iterable[str]) -> list[tuple[Hashable, str | None]]:
        """Return the machine's state after each symbol, and its answer there.

        Raises:
            ValueError: a symbol is not allowed at its position; one line.
        """
        state, passed = self.start, []
        for place, symbol in enumerate(symbols, 1):
            try:
                state, answer = self.step(state, symbol)
            except (LookupError, StopIteration, TypeError, ValueError) as error:
                raise ValueError(
                    f"{self.name} has no string with {symbol!r} at position {place}"
                ) from error
            passed.append((state, answer))
        return passed

    def parse(self, text: str) -> list[str]:
        """Split a text into symbols, with or without spaces between them.

        Raises:
            ValueError: the text is empty or has an unknown symbol; one line.
        """
        symbols = text.split() if max(map(len, self.words)) > 1 or " " in text else list(text)
        if not symbols:
            raise ValueError(f"empty string: the symbols of {self.name} are {' '.join(self.words)}")
        for symbol in symbols:
            if symbol not in self.words:
                known = " ".join(self.words[:12]) + (" ..." if len(self.words) > 12 else "")
                hint = did_you_mean(symbol, self.words)
                raise ValueError(f"{self.name} has no symbol {symbol!r}; known: {known}{hint}")
        return symbols

    def small(self) -> "Language":
        """Return the language with half the sizes."""
        low, high = self.sizes
        sizes = [size for size in range(1, -(-high // 2) + 1) if self.has(size)]
        half = sizes[-1] if sizes else high
        return replace(self, sizes=(min(low, half), half))

    def statistics(self, samples: Sequence[Sample]) -> list[Statistic]:
        answered = [t for sample in samples for t in sample.targets if t != UNASKED]
        changes = [
            sum(a != b for a, b in pairwise(t for t in sample.targets if t != UNASKED))
            for sample in samples
        ]
        return [
            Statistic("class", self.family(), ""),
            Statistic(
                "length, min / mean / max",
                length_range([len(sample.tokens) for sample in samples]),
                "",
            ),
            Statistic("commonest answer", f"{100 * share_of_commonest(answered):.1f} %", ""),
            Statistic("changes of the answer, min / mean / max", length_range(changes), ""),
        ]


def step_and_ask(
    language: Language, state: Any, symbol: str, asked: bool = True
) -> tuple[Any, str | None]:
    """Read a symbol and, if `asked`, answer the question about the string read so far.

    `language` has one question per string. This is `step` for the language of its prefixes.
    """
    state, _ = language.step(state, symbol)
    return state, language.step(state, ASK)[1] if asked else None
