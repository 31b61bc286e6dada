"""Code execution: read a program once and give the value that each `print` prints.

    x = 3 ; y = 7 ; x ++ ; if y < 6 : print x ; print x ;
    _ _ _ _ _ _ _ _ _ _  _ _  _ _ _ _ _     _ _ _     _ 4

At the `;` of an executed `print` the answer is the value; everywhere else it is `_`. The first
statement assigns and the last prints. Each other statement is, with equal probability, an
assignment, an increment or decrement, a print, or one of these under a condition. A statement that
would move a value outside [-8, 16] is redrawn.
Source: Irie et al. 2021, section 4.2 and appendix B.1, after Fan et al. 2020.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, NamedTuple

from fastweights.tasks.task import (
    Sample,
    Statistic,
    Task,
    distribution,
    length_range,
    share_of_commonest,
)

NAMES = ("x", "y", "z", "a", "b")
DIGITS = tuple("0123456789")
SYMBOLS = ("=", "++", "--", "print", "if", "<", ">", ":", ";")
LOWEST, HIGHEST = -8, 16


class Statement(NamedTuple):
    """One statement of a program, and its effect."""

    words: tuple[str, ...]
    printed: int | None = None
    change: tuple[str, int] | None = None  # a variable and its new value


@dataclass(frozen=True, kw_only=True)
class CodeExecution(Task):
    """A program of `statements` statements over the first `variables` of x, y, z, a, b."""

    variables: int = 3
    """Number of variables, 1 to 5; the paper uses 3 and 5."""
    statements: int = 100
    """Number of statements per program, including the first assignment and the last print."""
    legacy_conditional_assign: bool = False
    """As in the published generator, skip assignments under a true condition if the variable
    already has a value."""

    name: ClassVar[str] = "code_execution"
    blank: ClassVar[int] = 0

    def check(self) -> None:
        if not 1 <= self.variables <= len(NAMES):
            raise ValueError(f"--variables must lie in [1, {len(NAMES)}], not {self.variables}")
        if self.statements < 2:
            raise ValueError(
                f"--statements must be at least 2 (an assignment and a print), not "
                f"{self.statements}"
            )

    @property
    def words(self) -> tuple[str, ...]:
        return (*NAMES[: self.variables], *DIGITS, *SYMBOLS)

    @property
    def answers(self) -> tuple[str, ...]:
        return ("_", *map(str, range(LOWEST, HIGHEST + 1)))

    def sample(self, random: Random) -> Sample:
        values: dict[str, int] = {}
        program = [self._assign(random, values)]
        values.update([program[0].change])
        for _ in range(self.statements - 2):
            program.append(self._statement(random, values))
            values.update(filter(None, [program[-1].change]))
        program.append(self._print(random, values))
        numbers = {word: number for number, word in enumerate(self.words)}
        return Sample(
            tuple(numbers[word] for statement in program for word in statement.words),
            tuple(target for statement in program for target in _targets(statement)),
        )

    def small(self) -> "CodeExecution":
        """Return the task with a quarter of the statements and half as many variables."""
        variables, statements = -(-self.variables // 2), max(2, self.statements // 4)
        return replace(self, variables=variables, statements=statements)

    def statistics(self, samples: Sequence[Sample]) -> list[Statistic]:
        printed = [[t for t in sample.targets if t != self.blank] for sample in samples]
        values = [target - 1 for targets in printed for target in targets]  # 0: LOWEST
        return [
            Statistic(
                "length, min / mean / max",
                length_range([len(sample.tokens) for sample in samples]),
                "about 370 / 450 / 550" if self.statements == 100 else "",
            ),
            Statistic(
                "prints a program, min / mean / max", length_range(list(map(len, printed))), ""
            ),
            Statistic(
                "commonest value, of prints", f"{100 * share_of_commonest(values):.1f} %", ""
            ),
            *distribution(values, self.answers[1:]),
        ]

    def _statement(self, random: Random, values: Mapping[str, int]) -> Statement:
        kinds = (self._assign, self._count, self._print, self._condition)
        while True:
            statement = random.choice(kinds)(random, values)
            if statement.change is None or LOWEST <= statement.change[1] <= HIGHEST:
                return statement

    def _assign(self, random: Random, values: Mapping[str, int]) -> Statement:
        name, value = random.choice(NAMES[: self.variables]), random.choice(DIGITS)
        return Statement((name, "=", value, ";"), change=(name, int(value)))

    def _count(self, random: Random, values: Mapping[str, int]) -> Statement:
        name = random.choice(list(values))
        symbol, step = random.choice((("++", 1), ("--", -1)))
        return Statement((name, symbol, ";"), change=(name, values[name] + step))

    def _print(self, random: Random, values: Mapping[str, int]) -> Statement:
        name = random.choice(list(values))
        return Statement(("print", name, ";"), printed=values[name])

    def _condition(self, random: Random, values: Mapping[str, int]) -> Statement:
        name, symbol = random.choice(list(values)), random.choice("<>")
        constant = random.choice(DIGITS)
        then = random.choice((self._assign, self._count, self._print))(random, values)
        words = ("if", name, symbol, constant, ":", *then.words)
        difference = values[name] - int(constant)
        if not (difference < 0 if symbol == "<" else difference > 0):
            return Statement(words)
        assigns_again = "=" in then.words and then.change[0] in values
        if self.legacy_conditional_assign and assigns_again:
            return Statement(words)
        return then._replace(words=words)


def _targets(statement: Statement) -> list[int]:
    answer = 0 if statement.printed is None else 1 + statement.printed - LOWEST
    return [0] * (len(statement.words) - 1) + [answer]
