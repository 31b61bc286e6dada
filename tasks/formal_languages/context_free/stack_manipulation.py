"""Stack manipulation: the contents of a stack, from the top, after pushes and pops.

    a b pop push_b ? ? ? ? ?
    _ _ _   _      b a . . .

A string is the stack from its bottom, then actions. Popping an empty stack does nothing. There is
one more question than symbols; below the bottom of the stack, the answer is a full stop.
Source: Delétang et al. 2023, section 4.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import ClassVar

from fastweights.tasks.formal_languages.language import ASK, Language

END, POP = ".", "pop"
PUSHED = {"push_a": "a", "push_b": "b"}


class StackManipulation(Language):
    """The state is the stack with its top last."""

    name: ClassVar[str] = "stack_manipulation"
    title: ClassVar[str] = "stack manipulation"
    alphabet: ClassVar[tuple[str, ...]] = ("a", "b", POP, *PUSHED)
    answers: ClassVar[tuple[str, ...]] = ("a", "b", END)
    asks: ClassVar[bool] = True
    start: ClassVar[str] = ""
    is_stack: ClassVar[bool] = True

    def step(self, state: str, symbol: str) -> tuple[str, str | None]:
        if symbol == ASK:
            return state[:-1], state[-1] if state else END
        if symbol == POP:
            return state[:-1], None
        return state + PUSHED.get(symbol, symbol), None

    def questions(self, symbols: Sequence[str]) -> int:
        return len(symbols) + 1

    def draw(self, random: Random, size: int) -> Iterable[str]:
        first = random.randint(1, size)
        actions = random.choices((POP, *PUSHED), k=size - first)
        return [*random.choices("ab", k=first), *actions]
