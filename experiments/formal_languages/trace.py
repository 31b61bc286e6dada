"""A trace: the component of a memory that tracks a language's machine, position by position.

Every number that `Core.inspect` returns is a candidate: a unit of an LSTM, an entry of a
fast-weight matrix, a write strength. Delta rules have one more: the eigenvalue 1 - beta |k|^2 by
which a write multiplies the value stored at its key; below zero, it can flip a sign. The candidate
selected is the one best explained by the machine's state on strings drawn for this purpose,
measured by the correlation ratio: the share of its variance that lies between states.

A state that is reached by only one prefix would explain any memory, so positions with such states
do not count. If nearly all states are of this kind, as in a machine that keeps the whole string,
the machine's answers select the component instead, at the positions that have an answer. Parts of a
state that the language declares untraced do not count: they determine which symbols may follow,
such as whether a b was read.
"""

import csv
import io
import sys
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.host import write_bytes
from fastweights.tasks import Language, Sample, SequenceModel, Sequences

STRINGS = 64  # number of strings for selecting the component
FOR_ANSWERS = 256  # the same if answers select it: a string may have only one answer
MOST_ALONE = 0.75  # maximum share of positions whose state no other prefix reaches
LONGEST_TRACE = 2_000  # symbols
_LARGEST = 50_000_000  # maximum count of numbers in memory
_GROWING = ("count",)  # reveals the position, which may correlate with a machine's state


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One string, position by position: the machine, the model's answer, and the component."""

    language: Language
    symbols: Sequence[str]
    states: Sequence[Hashable]  # of the machine
    expected: Sequence[str | None]
    answered: Sequence[str]
    component: str  # such as: layer 1 fast_weights[0, 2, 1]
    explained: float  # share of its variance explained, on the strings drawn to select it
    groups: str  # the groups that explain it: STATES or ANSWERS
    values: Sequence[float]
    strengths: Mapping[str, Sequence[float]]  # write strengths and eigenvalues, by name

    @property
    def wrong(self) -> list[int]:
        """The positions with a wrong answer."""
        pairs = enumerate(zip(self.expected, self.answered, strict=True))
        return [place for place, (right, given) in pairs if right not in (None, given)]


def trace(model: SequenceModel, options: SequenceOptions, text: str) -> Trace:
    """Follow a model through a string or a prefix of one.

    Raises:
        ValueError: not a prefix of any string of the language, the string is too long, the core has
            no memory to inspect or its memory never changes, or all positions are in one group; one
            line.
    """
    language = options.task
    symbols = _symbols(language, text)
    passed = _passed(language, symbols)
    chosen = _chosen(language, options)
    names, explained = _explained(_follow(model, chosen.samples, chosen.places), chosen.groups)
    best = int(np.argmax(explained))
    if np.isneginf(explained[best]):
        raise ValueError("no number in the core's memory changes over the language's strings")
    everywhere = [(time, 0) for time in range(len(symbols))]
    own = _follow(model, [language.labelled(symbols)], everywhere)
    special = [place for place, name in enumerate(names) if _is_strength(name)]
    return Trace(
        language=language,
        symbols=symbols,
        states=[state for state, _ in passed],
        expected=[answer for _, answer in passed],
        answered=[language.answers[number] for number in own.answers],
        component=names[best],
        explained=float(explained[best]),
        groups=chosen.by,
        values=own.values[:, best].tolist(),
        strengths={names[place]: own.values[:, place].tolist() for place in special},
    )


def write_csv(found: Trace, path: Path) -> None:
    """Write one row per position."""
    text = io.StringIO(newline="")
    head = ("position", "symbol", "machine", "expected", "answered", found.component)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, *found.strengths])
    machine = [state_text(state) for state in found.states]
    columns = (found.symbols, machine, found.expected, found.answered, found.values)
    for place, row in enumerate(zip(*columns, *found.strengths.values(), strict=True), 1):
        writer.writerow([place, *("" if value is None else value for value in row)])
    write_bytes(path, text.getvalue().encode())


def state_text(state: Hashable) -> str:
    """Return a machine's state as text: its parts, with their names if they have any."""
    if isinstance(state, tuple) and hasattr(state, "_asdict"):
        return " ".join(f"{name}={part}" for name, part in state._asdict().items())
    return " ".join(map(str, state)) if isinstance(state, tuple) else str(state)


def _symbols(language: Language, text: str) -> list[str]:
    """Return the symbols and questions in `text`; raise a one-line `ValueError` if invalid."""
    symbols = language.with_questions(language.parse(text))
    if len(symbols) > LONGEST_TRACE:
        raise ValueError(f"--trace takes at most {LONGEST_TRACE:,} symbols, not {len(symbols):,}")
    given = list(takewhile(language.alphabet.__contains__, symbols))
    asked = symbols[len(given) :]
    if not given or any(symbol in language.alphabet for symbol in asked):
        raise ValueError(f"the questions of {language.name} follow a string{_example(language)}")
    if len(asked) > (most := language.questions(given)):
        said = f"questions after this string of {language.name}: at most {most}, not {len(asked)}"
        raise ValueError(f"{said}{_example(language)}")
    return symbols


def _passed(language: Language, symbols: Sequence[str]) -> list[tuple[Hashable, str | None]]:
    """Run the machine; if it rejects a symbol, raise an error with an example string."""
    try:
        return language.run(symbols)
    except ValueError as error:
        raise ValueError(f"{error}{_example(language)}") from error


def _example(language: Language) -> str:
    """Return the example from the language's file, for the end of an error message."""
    lines = (sys.modules[type(language).__module__].__doc__ or "").splitlines()
    examples = [line.strip() for line in lines if line.startswith("    ")]
    return f"; a string is, for example, {examples[0]}" if examples else ""


class Chosen(NamedTuple):
    """Positions P of drawn strings, in groups; no two have the same prefix."""

    samples: list[Sample]
    places: list[tuple[int, int]]  # time and string of each position, sorted
    groups: list[Hashable]  # group of each position
    by: str


STATES = "the machine's states"
ANSWERS = "the machine's answers (nearly every position has a state of its own)"


def _chosen(language: Language, options: SequenceOptions) -> Chosen:
    """Draw strings; group positions by the machine's state, or else by its answer.

    Raises:
        ValueError: all positions are in one group, so no share of a variance lies between groups.
    """
    chosen = _by_states_or_answers(language, options)
    if len(set(chosen.groups)) == 1:
        fewer = f", or leave less of its state untraced than {', '.join(language.untraced)}"
        raise ValueError(
            f"no number can follow the machine of {language.name}: {chosen.by} are the same at all "
            f"positions; train with larger --sizes{fewer if language.untraced else ''}"
        )
    return chosen


def _by_states_or_answers(language: Language, options: SequenceOptions) -> Chosen:
    samples = _drawn(language, options, STRINGS)
    passed = _beginnings(language, samples)
    sizes = Counter(state for state, _ in passed.values())
    places = sorted(place for place, (state, _) in passed.items() if sizes[state] > 1)
    if len(places) >= (1 - MOST_ALONE) * len(passed):
        return Chosen(samples, places, [passed[place][0] for place in places], STATES)
    samples = _drawn(language, options, FOR_ANSWERS)
    passed = _beginnings(language, samples)
    places = sorted(place for place, (_, answer) in passed.items() if answer is not None)
    return Chosen(samples, places, [passed[place][1] for place in places], ANSWERS)


def _drawn(language: Language, options: SequenceOptions, count: int) -> list[Sample]:
    random = Random(f"{options.data_seed} trace")
    every = language.every("bin0")
    return every or [language.sample_of("bin0", random) for _ in range(count)]


def _beginnings(
    language: Language, samples: Sequence[Sample]
) -> dict[tuple[int, int], tuple[Hashable, str | None]]:
    """Return state and answer by (time, string), once per prefix that strings share."""
    found, seen = {}, {}
    for number, sample in enumerate(samples):
        words = [language.words[token] for token in sample.tokens]
        beginning = 0  # number of the prefix; 0: nothing read
        for time, (word, passed) in enumerate(zip(words, language.run(words), strict=True)):
            if (key := (beginning, word)) not in seen:
                seen[key] = len(seen) + 1
                found[time, number] = _counted(language, passed[0]), passed[1]
            beginning = seen[key]
    return found


def _counted(language: Language, state: Any) -> Hashable:
    """Return a state without its untraced parts."""
    if not language.untraced:
        return state
    return tuple(part for name, part in state._asdict().items() if name not in language.untraced)


class Followed(NamedTuple):
    """The answers and values at some positions P."""

    answers: list[int]
    names: list[str]
    values: np.ndarray  # [P, names]


@torch.no_grad()
def _follow(
    model: SequenceModel, samples: Sequence[Sample], places: Sequence[tuple[int, int]]
) -> Followed:
    """Step through all strings in parallel; keep the positions (time, string), sorted."""
    model.eval()
    tokens, _ = Sequences.of(samples).batch(torch.arange(len(samples)))
    kept = torch.zeros(tokens.shape, dtype=torch.bool)
    kept[tuple(torch.tensor(places).T)] = True
    x, state = model.embedding(tokens), model.core.initial_state(len(samples))
    answers, values, names = [], [], []
    for x_t, going in zip(x, kept, strict=True):
        names, numbers = _flat(model.core.inspect(x_t, state))
        if len(names) * max(len(places), len(samples)) > _LARGEST:
            raise ValueError("the core's state is too large for a trace: choose smaller sizes")
        y, state = model.core.step(x_t, state)
        answers.append(model.answer(y).argmax(-1)[going])
        values.append(numbers[going])
    return Followed(torch.cat(answers).tolist(), names, torch.cat(values).double().numpy())


def _explained(followed: Followed, groups: Sequence[Hashable]) -> tuple[list[str], np.ndarray]:
    """Return names, and the share of each number's variance that lies between groups.

    Adjusted for the number of groups, like R^2; -inf for a number that barely changes.
    """
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    of_group = np.array([numbers[group] for group in groups])
    order = np.argsort(of_group, kind="stable")
    values, counts = followed.values[order], np.bincount(of_group)
    begins = np.cumsum(counts) - counts
    means = np.add.reduceat(values, begins) / counts[:, None]
    within = np.square(values - np.repeat(means, counts, 0)).sum(0)
    within /= max(1, len(values) - len(counts))
    total = np.square(values - values.mean(0)).sum(0) / max(1, len(values) - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return followed.names, np.where(total > 1e-8, 1 - within / total, -np.inf)


def _flat(layers: list[dict[str, Tensor]]) -> tuple[list[str], Tensor]:
    """Return all numbers of a step, concatenated as [B, names], and their names."""
    if not layers:
        raise ValueError("the core has no memory to trace")
    names, parts = [], []
    for number, layer in enumerate(layers, 1):
        where = f"layer {number} " if len(layers) > 1 else ""
        for name, tensor in (layer | _eigenvalues(layer)).items():
            if name in _GROWING:
                continue
            places = np.ndindex(*tensor.shape[1:])
            names += [f"{where}{name}[{', '.join(map(str, place))}]" for place in places]
            parts.append(tensor.flatten(1).float())
    return names, torch.cat(parts, 1)


def _eigenvalues(layer: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return 1 - beta |k|^2 [B, H] if the layer has one write strength per head."""
    key, strength = layer.get("key"), layer.get("strength")
    if key is None or strength is None or strength.shape != key.shape[:-1]:
        return {}
    return {"eigenvalue": 1 - strength * key.square().sum(-1)}


def _is_strength(name: str) -> bool:
    return "strength[" in name or "eigenvalue[" in name or "forget_gate[" in name
