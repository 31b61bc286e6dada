"""Figure 8 of Merrill et al. 2020: L5 and a^n b^n Sigma*, trained at 64 symbols, tested up to 2048.

Four models: an LSTM, a QRNN, a QRNN with a two-layer decoder, and a two-layer QRNN. The second
language has the paper's labels, or those of its published code. Embedding 4, 10 units, batches of
16, Adam at 1e-3, up to 100 epochs of 100,000 strings, patience 10. Accuracy is over all positions.
Source: section 5, appendices E and H (ifo-QRNN) and the published settings. `NOTE` says what
differs from them.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastweights.evaluation import Curve, save_figure
from fastweights.experiments.grid import Cell, Grid, rebuild
from fastweights.experiments.pictures import Panel, curves_figure
from fastweights.experiments.rows import Row, rows_of
from fastweights.experiments.sequences.cells import SequenceRun
from fastweights.experiments.sequences.figures import labelled
from fastweights.experiments.sequences.options import SequenceOptions, with_epochs_at_most
from fastweights.experiments.sequences.table import SequenceTableOptions, check_table
from fastweights.experiments.table import Table, check_only, each_seed, label, mean_and_std
from fastweights.host import UserError, expanded, unknown_name, write_json
from fastweights.tasks import LANGUAGES, Language, TrainerConfig

NOTE = (
    "Not as published: weights are selected, and training ends, by accuracy on held-out strings, "
    "half of which are longer than 64 symbols; Adam's second moment decays by 0.995 per update."
)
LENGTHS = (64, 128, 256, 512, 1024, 2048)
STRINGS = 500  # strings per length
UNITS, EMBEDDING = 10, 4
_QRNN = {"core": "qrnn", "core_pooling": "ifo"}
MODELS: dict[str, dict[str, Any]] = {
    "LSTM": {"core": "lstm"},
    "QRNN": _QRNN,
    "QRNN (D2)": _QRNN | {"decoder": UNITS},
    "2-QRNN": _QRNN | {"core_layers": 2},
}
SIZES = {  # by preset: epochs and sequences
    "paper": (100, {"train_size": 100_000, "valid_size": 10_000, "test_size": 10_000}),
    "small": (20, {"train_size": 10_000, "valid_size": 1_000, "test_size": 1_000}),
}


def languages() -> list[Language]:
    """Return L5, and the second language with both versions of its labels."""
    sigma = LANGUAGES["a_n_b_n_sigma"]
    return [LANGUAGES["l5"](), sigma(), sigma(legacy_labels=True)]


def options(language: Language, model: str, preset: str) -> SequenceOptions:
    """Return the options of one run."""
    epochs, sizes = SIZES[preset]
    trainer = TrainerConfig(learning_rate=1e-3, batch_size=16, epochs=epochs, patience=10)
    given = {"core_width": UNITS, "embedding": EMBEDDING} | MODELS[model] | sizes
    measured = {"test_lengths": LENGTHS, "length_size": STRINGS}
    return SequenceOptions(task=language, trainer=trainer, **given, **measured)


def make_language_figure(
    number: int,
    preset: str,
    asked: SequenceTableOptions,
    changes: Mapping[str, Any] | None = None,
) -> int:
    """Run missing cells, write figure_8.md, .csv, .json and .png, and return the exit code.

    `changes`: options for all runs that the preset does not set, such as the device.
    """
    if number != 8:
        raise UserError(f"--figure {number} is unknown; known: 8")
    if preset not in SIZES:
        raise UserError(unknown_name("preset", preset, SIZES))
    check_table(asked)
    of_figure = dict.fromkeys(model["core"] for model in MODELS.values())
    check_only(asked.only, of_figure)
    folder = expanded(asked.runs).resolve() / f"figure8-{preset}{asked.shortened}"
    changes = {**(changes or {}), "savedir": folder}
    cells = [
        cell
        for language in languages()
        for model in MODELS
        if MODELS[model]["core"] in (asked.only or of_figure)
        for seed in asked.seeds
        for cell in _cells(language, model, preset, seed, asked.epochs_at_most, changes)
    ]
    grid = Grid(f"figure 8, preset {preset}", cells, folder)
    out = expanded(asked.out or folder).resolve()
    return rebuild(grid, partial(_write, grid, out / f"figure_8{asked.shortened}"), out, asked.jobs)


def _cells(
    language: Language,
    model: str,
    preset: str,
    seed: int,
    epochs: int | None,
    changes: Mapping[str, Any],
) -> list[Cell]:
    """Return one cell per length; they share a run."""
    name = f"{labelled(language)}-{model.replace(' ', '-').strip('()').lower()}-seed{seed}"
    chosen = replace(options(language, model, preset), seed=seed, xpid=_plain(name), **changes)
    chosen = with_epochs_at_most(chosen, epochs)
    labels = {"language": _title(language), "model": model}
    run = SequenceRun(chosen)
    return [Cell(labels | {"length": length, "seed": seed}, run) for length in LENGTHS]


def _title(language: Language) -> str:
    is_legacy = labelled(language) != language.name
    return f"{language.title}, labels of the paper's code" if is_legacy else language.title


def _plain(name: str) -> str:
    return "".join(c for c in name if c.isalnum() or c in "-_")


def _answers(labels_and_result: Mapping[str, Any]) -> float:
    rows = labels_and_result["lengths"]
    length = labels_and_result["length"]
    return 100 * next(row["answer_accuracy"] for row in rows if row["length"] == length)


def _write(grid: Grid, path: Path, failures: Mapping[str, str]) -> None:
    rows = rows_of(grid.cells, failures, _answers)
    columns = {
        **{name: label(name) for name in ("language", "model", "length")},
        "answers right": mean_and_std,
        "each seed": each_seed,
        "always the commonest": _majority,
    }
    results = [run.result() for run in grid.runs if run.finished]
    write_json(path.with_name("results.json"), results)
    shown = {"axis": "answers right, percent", "panel": "language"}
    Table(columns=columns, title=grid.title, note=NOTE, **shown).write(rows, path)
    for language in languages():
        title, of_models = _title(language), dict[str, list[Row]]()
        for row in rows:
            if row.labels["language"] == title and row.values:
                of_models.setdefault(row.labels["model"], []).append(row)
        drawn = {model: _curves(of_model) for model, of_model in of_models.items()}
        panel = Panel(drawn, "length of the string", "answers right, percent", lengths=True)
        picture = path.with_name(f"figure_8_{labelled(language)}.png")
        save_figure(curves_figure([[panel]], title), picture)


def _curves(rows: list[Row]) -> list[Curve]:
    """Return one curve per seed, over the lengths."""
    lengths = np.array([row.labels["length"] for row in rows], float)
    seeds = set.intersection(*(set(row.values) for row in rows))
    return [Curve(lengths, np.array([row.values[s] for row in rows], float)) for s in sorted(seeds)]


def _majority(row: Row) -> str:
    """Return the best score of a constant answer on strings of this length."""
    for run in row.runs.values():
        found = [r for r in run.result()["lengths"] if r["length"] == row.labels["length"]]
        return f"{100 * found[0]['commonest']:.1f}"
    return ""
