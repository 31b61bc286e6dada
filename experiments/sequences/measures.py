"""Measurements of a finished run: all splits, each length, and simple baselines."""

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from fastweights.cores import core_kind
from fastweights.evaluation import save_figure
from fastweights.experiments.pictures import lengths_figure
from fastweights.experiments.sequences.data import longest_in
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.host import write_bytes
from fastweights.tasks import (
    SCORED_AT_ONCE,
    UNASKED,
    Sample,
    SequenceModel,
    Sequences,
    SequenceScores,
    baseline_accuracies,
    score_sequences,
)

LENGTHS = "lengths.csv"
_COLUMNS = ("split", "length", "sequences", "sequence_accuracy", "answer_accuracy")
LONGEST_ATTENDED = 2_000  # attention over more positions takes gigabytes


def measure(
    model: SequenceModel, options: SequenceOptions, splits: Mapping[str, Sequences]
) -> dict[str, Any]:
    """Return scores on the held-out and test splits and on chosen lengths, and of baselines.

    `by_length` has one row per length within each test split.
    """
    task = options.task
    answered = partial(score_sequences, blank=task.blank, batch_size=SCORED_AT_ONCE)
    scores = {split: answered(model, splits[split]) for split in task.splits[1:]}
    tested = task.splits[2:]
    longest = longest_in(splits)
    lengths = [_of_length(model, options, longest, size) for size in options.test_lengths]
    return {
        **{split: found.result()._asdict() for split, found in scores.items()},
        "solved": all(scores[split].result().sequence_accuracy == 1 for split in tested),
        "lengths": [row for row in lengths if row],
        "by_length": [row for split in tested for row in _rows(split, splits, scores[split])],
        "baselines": {
            split: baseline_accuracies(task, splits["train"], splits[split]) for split in tested
        },
    }


def write_lengths(measured: dict[str, Any], folder: Path) -> None:
    """Write lengths.csv and lengths.png if lengths were measured; remove `by_length`."""
    rows = [*measured.pop("by_length"), *measured["lengths"]]
    rows = [{name: row[name] for name in _COLUMNS} for row in rows]
    if not measured["lengths"]:
        return
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_bytes(folder / LENGTHS, text.getvalue().encode())
    save_figure(lengths_figure(rows), folder / "lengths.png")


def _of_length(
    model: SequenceModel, options: SequenceOptions, longest: int, size: int
) -> dict[str, Any] | None:
    """Return the scores at the largest size up to `size`, with the strings' mean length in symbols.

    None if attention would span too many positions.
    """
    random = Random(f"{options.data_seed} length {size}")
    count = 1 if options.task.one_a_size else options.length_size
    drawn = (options.task.sample_of_length(size, random) for _ in range(count))
    samples: dict[Sample, None] = dict.fromkeys(drawn)
    sequences = Sequences.of(list(samples))
    if core_kind(options.core).attends and options.core_window >= longest:
        if int(sequences.lengths.max()) > LONGEST_ATTENDED:
            return None
        model = _wider(model, options, int(sequences.lengths.max()))
    found = score_sequences(model, sequences, options.task.blank, SCORED_AT_ONCE)
    symbols = round(sequences.lengths.double().mean().item())
    used = options.task.size_up_to(size)
    return _row("length", symbols, found) | {"size": used, "commonest": _commonest(sequences)}


def _commonest(sequences: Sequences) -> float:
    """Return the share of the most common answer among all asked positions."""
    asked = sequences.targets[sequences.targets != UNASKED].long()
    return asked.bincount().max().item() / len(asked)


def _wider(model: SequenceModel, options: SequenceOptions, window: int) -> SequenceModel:
    """Return the same model with attention over `window` positions."""
    wide = replace(options, core_window=max(window, options.core_window)).build()
    wide.load_state_dict(model.state_dict())
    return wide.to(model.output.weight.device)


def _rows(
    split: str, splits: Mapping[str, Sequences], scores: SequenceScores
) -> list[dict[str, Any]]:
    lengths = splits[split].lengths
    return [
        _row(split, length, SequenceScores(*(each[lengths == length] for each in scores)))
        for length in lengths.unique().tolist()
    ]


def _row(split: str, length: int, scores: SequenceScores) -> dict[str, Any]:
    found = scores.result()
    return {
        "split": split,
        "length": length,
        "sequences": len(scores.wrong),
        "sequence_accuracy": found.sequence_accuracy,
        "answer_accuracy": found.answer_accuracy if scores.answers.any() else None,
    }
