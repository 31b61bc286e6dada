"""A trace: the component of a memory that follows a language's machine, position by position.

Every number that `Core.inspect` returns is a candidate: a unit of an LSTM, an entry of a fast
weight matrix, a write strength. For delta rules there is one more, the eigenvalue 1 - beta |k|^2 by
which a write multiplies the value stored at its key; below zero it can flip a sign. The selected
candidate is the one that the machine's state explains best on strings drawn for this purpose, by
the correlation ratio: the share of its variance that lies between states.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastweights.experiments.sequence_options import SequenceOptions
from fastweights.host import write_bytes
from fastweights.tasks import Language, Sample, SequenceModel, Sequences

STRINGS = 64  # strings on which the component is selected
LONGEST_TRACE = 2_000  # symbols
_LARGEST = 50_000_000  # most numbers in memory
_GROWING = ("count",)  # tells the position, which a machine's state may follow as well


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One string, position by position: the machine, the model's answer, and the component."""

    symbols: Sequence[str]
    levels: Sequence[float]  # the machine's state as a number
    expected: Sequence[str | None]
    answered: Sequence[str]
    component: str  # such as: layer 1 fast_weights[0, 2, 1]
    explained: float  # share of its variance, by the machine's state, on other strings
    values: Sequence[float]
    strengths: Mapping[str, Sequence[float]]  # write strengths and eigenvalues, by name

    @property
    def wrong(self) -> list[int]:
        """The positions with a wrong answer."""
        pairs = enumerate(zip(self.expected, self.answered, strict=True))
        return [place for place, (right, given) in pairs if right not in (None, given)]


def trace(model: SequenceModel, options: SequenceOptions, text: str) -> Trace:
    """Follow a model through a string.

    Raises:
        ValueError: the string is too long or not in the language's symbols, or the core has no
            memory to inspect; one line.
    """
    language = options.task
    symbols = language.with_questions(language.parse(text))
    if len(symbols) > LONGEST_TRACE:
        raise ValueError(f"--trace takes at most {LONGEST_TRACE:,} symbols, not {len(symbols):,}")
    passed = language.run(symbols)
    names, explained = _explained(_follow(model, language, _drawn(language, options)))
    best = int(np.nanargmax(explained))
    own = _follow(model, language, [language.labelled(symbols)])
    special = [place for place, name in enumerate(names) if _is_strength(name)]
    return Trace(
        symbols=symbols,
        levels=[language.level(state) for state, _ in passed],
        expected=[answer for _, answer in passed],
        answered=[language.answers[number] for number in own.answers],
        component=names[best],
        explained=float(explained[best]),
        values=own.values[:, best].tolist(),
        strengths={names[place]: own.values[:, place].tolist() for place in special},
    )


def write_csv(found: Trace, path: Path) -> None:
    """Write a row for each position."""
    text = io.StringIO(newline="")
    head = ("position", "symbol", "machine", "expected", "answered", found.component)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, *found.strengths])
    columns = (found.symbols, found.levels, found.expected, found.answered, found.values)
    for place, row in enumerate(zip(*columns, *found.strengths.values(), strict=True), 1):
        writer.writerow([place, *("" if value is None else value for value in row)])
    write_bytes(path, text.getvalue().encode())


def _drawn(language: Language, options: SequenceOptions) -> list[Sample]:
    random = Random(f"{options.data_seed} trace")
    every = language.every("bin0")
    return every or [language.sample_of("bin0", random) for _ in range(STRINGS)]


class Followed(NamedTuple):
    """The values at every position P of some strings, all first positions first."""

    answers: list[int]
    levels: np.ndarray  # [P], the machine's state
    names: list[str]
    values: np.ndarray  # [P, names]


@torch.no_grad()
def _follow(model: SequenceModel, language: Language, samples: Sequence[Sample]) -> Followed:
    """Step through all strings side by side."""
    model.eval()
    tokens, _ = (sequences := Sequences.of(samples)).batch(torch.arange(len(samples)))
    strings = ([language.words[token] for token in sample.tokens] for sample in samples)
    machines = [[language.level(state) for state, _ in language.run(words)] for words in strings]
    x, state = model.embedding(tokens), model.core.initial_state(len(samples))
    answers, levels, values, names = [], [], [], []
    for time, x_t in enumerate(x):
        going = time < sequences.lengths
        levels += [machine[time] for machine in machines if time < len(machine)]
        names, numbers = _flat(model.core.inspect(x_t, state))
        if numbers.numel() * len(x) > _LARGEST:
            raise ValueError("the core's state is too large for a trace: choose smaller sizes")
        y, state = model.core.step(x_t, state)
        answers.append(model.answer(y).argmax(-1)[going])
        values.append(numbers[going])
    numbers = torch.cat(values).double().numpy()
    return Followed(torch.cat(answers).tolist(), np.array(levels), names, numbers)


def _explained(followed: Followed) -> tuple[list[str], np.ndarray]:
    """Return names, and the share of each number's variance that lies between states.

    Adjusted, as R^2 is, for the number of states; -inf for a number that hardly changes.
    """
    _, states = np.unique(followed.levels, return_inverse=True)
    groups = np.eye(states.max() + 1)[states]  # [P, states]
    counts = groups.sum(0)
    means = groups.T @ followed.values / counts[:, None]
    within = np.square(followed.values - means[states]).sum(0) / max(1, len(states) - len(counts))
    total = followed.values.var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return followed.names, np.where(total > 1e-8, 1 - within / total, -np.inf)


def _flat(layers: list[dict[str, Tensor]]) -> tuple[list[str], Tensor]:
    """Return all numbers of a step side by side, [B, names], and their names."""
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
    """Return 1 - beta |k|^2 [B, H], if the layer has one write strength a head."""
    key, strength = layer.get("key"), layer.get("strength")
    if key is None or strength is None or strength.shape != key.shape[:-1]:
        return {}
    return {"eigenvalue": 1 - strength * key.square().sum(-1)}


def _is_strength(name: str) -> bool:
    return "strength[" in name or "eigenvalue[" in name or "forget_gate[" in name
