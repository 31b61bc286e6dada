"""A search over the published space of settings: one task and core, every setting with every seed.

The paper reports the setting with the best mean of Bin0 and Bin1. Here, the validation split
selects it, unless the published selection is requested; scores on both bins are also shown.
Source: Irie et al. 2023, Table 3.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from fastweights.cores import core_kind, of_core
from fastweights.experiments.grid import Grid, cells, rebuild
from fastweights.experiments.learning_options import changed_learning_options
from fastweights.experiments.rows import Row, rows_of
from fastweights.experiments.sequences.cells import SequenceRun
from fastweights.experiments.sequences.options import SequenceOptions, with_epochs_at_most
from fastweights.experiments.sequences.outcomes import best_baseline, is_solved
from fastweights.experiments.sequences.presets import sequence_preset
from fastweights.experiments.sequences.table import SequenceTableOptions, check_table
from fastweights.experiments.table import Table, each_seed, label, mean_and_std
from fastweights.host import UserError, expanded, flags, unknown_name, write_json

LAYERS, WIDTHS, MULTIPLES, HEADS = (1, 2, 4), (8, 16, 32), (1, 2, 4), (1, 2, 4)
RATES, BATCHES = (1e-3, 2e-3, 3e-3, 1e-2, 2e-2, 3e-2), (16, 32, 64)
LSTM_LAYERS, LSTM_WIDTHS = (1, 2), (8, 16, 32, 64)
ORDERS = ("grid", "random")
# Options that a run gets from its setting, seed or position, in addition to the core's sizes.
_REPLACED = ("seed", "savedir", "xpid", "num_threads", "learning_rate", "batch_size")


@dataclass(frozen=True)
class Setting:
    """A point in the search space: options of the core (sizes) and of the trainer."""

    sizes: tuple[tuple[str, int], ...]
    learning_rate: float
    batch_size: int

    def __str__(self) -> str:
        named = [f"{name}={value}" for name, value in self.sizes]
        return " ".join([*named, f"rate={self.learning_rate:g}", f"batch={self.batch_size}"])

    def options(self, base: SequenceOptions, seed: int, folder: Path) -> SequenceOptions:
        """Return `base` with this setting, a seed and a folder."""
        name = str(self).replace(" ", "-").replace("=", "")
        rates = {"learning_rate": self.learning_rate, "batch_size": self.batch_size}
        return replace(
            base.with_core(dict(self.sizes)),
            trainer=replace(base.trainer, **rates),
            seed=seed,
            savedir=folder,
            xpid=f"{base.task.name}-{base.core}-{name}-seed{seed}",
        )


def space(core: str) -> list[Setting]:
    """Return all settings of a core: its own options, in consistent combinations."""
    known = core_kind(core).options()
    is_block = "heads" in known
    axes = {"layers": LAYERS if is_block else LSTM_LAYERS, "heads": HEADS}
    axes |= {"width": WIDTHS if is_block else LSTM_WIDTHS, "feedforward": MULTIPLES}
    axes = {name: values for name, values in axes.items() if name in known}
    sizes = (dict(zip(axes, one, strict=True)) for one in itertools.product(*axes.values()))
    return [
        Setting(tuple(_in_units(size).items()), rate, batch)
        for size in sizes
        for rate, batch in itertools.product(RATES, BATCHES)
        if size.get("width", 1) % size.get("heads", 1) == 0
    ]


def search_settings(
    order: str,
    trials: int,
    base: SequenceOptions,
    preset_name: str,
    asked: SequenceTableOptions,
) -> int:
    """Run missing settings; write search.md, .csv, .json and .png; return the exit code.

    `base` has the options of the preset `preset_name`.
    """
    if order not in ORDERS:
        raise UserError(unknown_name("--search", order, ORDERS))
    if trials < 1:
        raise UserError(f"--trials must be at least 1, not {trials}")
    check_table(asked)
    chosen = space(base.core)
    _check_kept(base, preset_name, chosen[0])
    if order == "random":
        chosen = Random(0).sample(chosen, min(trials, len(chosen)))
    base = with_epochs_at_most(base, asked.epochs_at_most)
    marks = f"{base.selection_mark}{asked.shortened}"
    name = f"search-{base.task.name}-{base.core}-{preset_name}{marks}"
    folder = expanded(asked.runs).resolve() / name

    def run(setting: Setting, seed: int) -> SequenceRun:
        return SequenceRun(setting.options(base, seed, folder))

    title = f"{base.core} on {base.task.title}: {len(chosen)} settings"
    grid = Grid(title, cells(run, setting=chosen, seed=asked.seeds), folder)
    out = expanded(asked.out or folder).resolve()
    return rebuild(grid, partial(_write, grid, base.selecting, out), out, asked.jobs)


def _check_kept(base: SequenceOptions, preset_name: str, setting: Setting) -> None:
    """Raise a one-line `UserError` for given options that the runs of a search override."""
    preset = sequence_preset(preset_name, base.core, type(base.task)())
    replaced = (*_REPLACED, *of_core(base.core, dict(setting.sizes)))
    given = changed_learning_options(preset, base)
    if refused := [name for name in given if name in replaced]:
        raise UserError(
            f"{flags(refused)} cannot be used with --search, whose runs set their own values; "
            "use --seeds, --jobs and --runs for seeds, parallel runs and folder"
        )


def _in_units(size: Mapping[str, int]) -> dict[str, int]:
    """Return sizes with feed-forward sizes in units rather than multiples of the width."""
    return dict(size) | (
        {"feedforward": size["feedforward"] * size["width"]} if "feedforward" in size else {}
    )


def _selecting(splits: Sequence[str], labels_and_result: Mapping[str, Any]) -> float:
    return 100 * fmean(labels_and_result[split]["sequence_accuracy"] for split in splits)


def _write(grid: Grid, selecting: Sequence[str], out: Path, failures: Mapping[str, str]) -> None:
    rows = ranked(rows_of(grid.cells, failures, partial(_selecting, selecting)))
    columns = {
        "setting": label("setting"),
        "held out" if selecting == ("valid",) else "both bins": mean_and_std,
        "each seed": each_seed,
        "bin0": partial(_split, "bin0"),
        "bin1": partial(_split, "bin1"),
        "seeds solved": _solved,
    }
    results = [result | {"setting": str(result["setting"])} for result in grid.results()]
    write_json(out / "results.json", results)
    shown = [replace(row, labels={"setting": str(row.labels["setting"])}) for row in rows]
    Table(columns=columns, title=grid.title, note=_baselines(results)).write(shown, out / "search")


def ranked(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, best mean first; those with failed seeds, whose means lack these, last."""

    def key(row: Row) -> tuple[bool, float]:
        return not row.failed, -1.0 if row.mean is None else row.mean

    return sorted(rows, key=key, reverse=True)


def _split(split: str, row: Row) -> str:
    scores = [run.result()[split]["sequence_accuracy"] for run in row.runs.values()]
    return f"{100 * fmean(scores):.1f}" if scores else ""


def _solved(row: Row) -> str:
    return f"{sum(is_solved(run.result()) for run in row.runs.values())} of {len(row.seeds)}"


def _baselines(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the best baseline's percentage for each bin, which is the same for all settings."""
    if not results:
        return ""
    best = ((split, *best_baseline(results[0], split)) for split in ("bin0", "bin1"))
    shown = ", ".join(f"{100 * share:.1f} % of {split} ({name})" for split, share, name in best)
    return f"The best baseline has {shown}."
