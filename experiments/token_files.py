"""Sequences as token files: a `.src` file of words and a `.tgt` file of answers per split.

A line is a sequence of tokens, separated by spaces. Where no answer is requested, the answer is `_`
(a task whose blank is `_` requests one at every position). The files of a formal language are named
like the published data (Bhattamishra et al. 2020): `train_50`, `valid_50` for Bin0 and `test_50`
for Bin1, where 50 is the maximum size in training. `selection_50` selects the best weights.
"""

import re
from pathlib import Path
from typing import NamedTuple

from fastweights.host import UserError, describe_os_error, did_you_mean, write_bytes
from fastweights.tasks import UNASKED, Sample, Sequences, Task

NOT_ASKED = "_"
_STEMS = {"bin0": "valid", "bin1": "test", "valid": "selection"}  # for tasks with bins
_HELD_OUT = 10  # without a validation file, one training sequence in this many is held out


def stem(task: Task, split: str) -> str:
    """Return the name of a split's files, without extension and size."""
    return _STEMS.get(split, split) if "bin0" in task.splits else split


def write_splits(folder: Path, task: Task, splits: dict[str, Sequences]) -> list[Path]:
    """Write all splits and return the files; raise a one-line `UserError` on failure."""
    size = f"_{task.sizes[1]}" if "bin0" in task.splits else ""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split, sequences in splits.items():
            samples = sequences.samples()
            for ending, lines in (
                ("src", [[task.words[token] for token in sample.tokens] for sample in samples]),
                ("tgt", [[_answer(task, t) for t in sample.targets] for sample in samples]),
            ):
                written.append(folder / f"{stem(task, split)}{size}.{ending}")
                text = "".join(f"{' '.join(line)}\n" for line in lines)
                write_bytes(written[-1], text.encode())
    except OSError as error:
        raise UserError(f"--export: {describe_os_error(error)}") from error
    return written


def read_splits(folder: Path, task: Task) -> dict[str, Sequences]:
    """Return all splits; without a validation file, hold out every tenth training sequence.

    Raises:
        UserError: a file or a line is invalid; one line that names it.
    """
    found = {split: _read_split(folder, task, split) for split in task.splits}
    if found["valid"] is None and found["train"]:
        found["train"], found["valid"] = _hold_out(found["train"], stem(task, "valid"))
    for split, part in found.items():
        if part is None:
            name = stem(task, split)
            raise UserError(
                f"--files {folder} has no sequences in {name}.src and {name}.tgt; the names may "
                f"include a size, as in {name}_50.src"
            )
        if all(set(sample.targets) == {task.blank} for sample in part.samples):
            raise UserError(
                f"{part.target}: no position has an answer; all are {task.answers[task.blank]}"
            )
    return {split: Sequences.of(part.samples) for split, part in found.items()}


class _Part(NamedTuple):
    """The sequences of a split, and the file and lines of their answers for messages."""

    target: str
    samples: list[Sample]


def _hold_out(read: _Part, name: str) -> tuple[_Part, _Part]:
    """Return the training sequences and those held out, because `name`.src is missing."""
    if len(read.samples) < 2:
        raise UserError(
            f"{read.target} has one sequence, which is held out: add others, or {name}.src and "
            f"{name}.tgt"
        )
    kept = [sample for place, sample in enumerate(read.samples) if place % _HELD_OUT]
    lines = f"1, {_HELD_OUT + 1}, ... (held out: there is no {name}.src)"
    return (
        _Part(f"{read.target}, lines other than {lines}", kept),
        _Part(f"{read.target}, lines {lines}", read.samples[::_HELD_OUT]),
    )


def _read_split(folder: Path, task: Task, split: str) -> _Part | None:
    """Return the sequences of a split; None if it has no file."""
    pattern = re.compile(rf"{stem(task, split)}(_\d+)?\.src")
    try:
        sources = sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
    except OSError as error:
        raise UserError(f"--files: {describe_os_error(error)}") from error
    if len(sources) > 1:
        names = " and ".join(path.name for path in sources)
        raise UserError(f"--files {folder} has {names}: keep one of them")
    if not sources:
        return None
    source, target = sources[0], sources[0].with_suffix(".tgt")
    lines, answers = _lines(source), _lines(target)
    if len(lines) != len(answers):
        raise UserError(
            f"{source} has {len(lines)} lines and {target.name} {len(answers)}: each sequence "
            "needs a line in both"
        )
    samples = [
        _sample(task, source, target, number, *pair)
        for number, pair in enumerate(zip(lines, answers, strict=True), 1)
    ]
    return _Part(str(target), samples)


def _sample(
    task: Task, source: Path, target: Path, number: int, words: list[str], answers: list[str]
) -> Sample:
    if not words:
        raise UserError(f"{source}, line {number}: a sequence needs at least one token")
    if len(words) != len(answers):
        raise UserError(
            f"{target}, line {number}: {len(answers)} answers to {len(words)} tokens; every token "
            f"needs one, {NOT_ASKED} if no answer is requested"
        )
    known_answers = {NOT_ASKED: UNASKED} | {a: n for n, a in enumerate(task.answers)}
    known_words = {word: n for n, word in enumerate(task.words)}
    sample = Sample(
        _numbers(words, known_words, source, number),
        _numbers(answers, known_answers, target, number),
    )
    if set(sample.targets) == {UNASKED}:  # a batch of such sequences would have no loss
        raise UserError(f"{target}, line {number}: no position has an answer; a sequence needs one")
    return sample


def _numbers(tokens: list[str], known: dict[str, int], path: Path, number: int) -> tuple[int, ...]:
    for token in tokens:
        if token not in known:
            some = " ".join(list(known)[:12]) + (" ..." if len(known) > 12 else "")
            hint = did_you_mean(token, known)
            raise UserError(f"{path}, line {number}: unknown {token!r}; known: {some}{hint}")
    return tuple(known[token] for token in tokens)


def _lines(path: Path) -> list[list[str]]:
    try:
        text = path.read_text(encoding="utf-8").removesuffix("\n")
        return [line.split() for line in text.split("\n")]
    except OSError as error:
        raise UserError(describe_os_error(error)) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text") from error


def _answer(task: Task, target: int) -> str:
    return NOT_ASKED if target == UNASKED else task.answers[target]
