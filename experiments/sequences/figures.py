"""The figures in the papers' tables, and the runs behind each."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from fastweights.cores import CORES, core_kind
from fastweights.experiments.published import AlgorithmicScore, algorithmic
from fastweights.experiments.sequences.cells import SequenceRun
from fastweights.experiments.sequences.options import SequenceOptions, with_epochs_at_most
from fastweights.experiments.sequences.presets import sequence_preset
from fastweights.host import UserError
from fastweights.tasks import TASKS, Task

# Divisors of these tables' sizes for the small preset: for LSTMs and other cores without heads, and
# for all other cores.
SMALLER_LSTM = {6: {"width": 2}, 7: {"width": 8}}
SMALLER = {6: {"layers": 2, "width": 4, "heads": 4, "feedforward": 4}}


class Figure(NamedTuple):
    """One figure in a paper's table, and the options of the runs that it averages."""

    published: AlgorithmicScore
    options: SequenceOptions
    sizes: dict[str, int]  # of the core, if given in the table
    own_sizes: dict[str, int]  # those among them that the preset changes

    @property
    def has_papers_sizes(self) -> bool:
        """Whether the runs have the sizes in the paper's row."""
        return self.sizes == named_sizes(self.published)

    def run(self, seed: int) -> SequenceRun:
        """Return its run with this seed; figures from the same training share it."""
        setting = self.published.setting.replace("=", "")
        sizes = [f"{name}{size}" for name, size in self.own_sizes.items()]
        name = labelled(self.options.task) + self.options.selection_mark
        parts = [name, setting, self.options.core, *sizes, f"seed{seed}"]
        return SequenceRun(replace(self.options, seed=seed, xpid="-".join(filter(None, parts))))


def cell_options(options: SequenceOptions) -> list[str]:
    """Return the names of the options that a table's runs take from the command line."""
    names = ["device", "kernels", "data", "legacy_conditional_assign"]
    names += ["legacy_selection"] * options.task.has_lengths
    return [name for name in names if name in options.flat()]


def labelled(task: Task) -> str:
    """Return the task's name, marked if its data come from the published generator."""
    legacy = any(value for name, value in vars(task).items() if name.startswith("legacy"))
    return f"{task.name}-legacy" if legacy else task.name


def figures(
    command: str,
    number: int,
    preset_name: str,
    epochs: int | None = None,
    changes: Mapping[str, Any] | None = None,
    further: Sequence[str] = (),
) -> list[Figure]:
    """Return the table's figures in the paper's order, for the tasks of a command.

    Args:
        command: name of the command.
        number: number of the table.
        preset_name: name of the preset.
        epochs: maximum number of epochs; None for the preset's.
        changes: options listed by `cell_options`, and `savedir`, for all figures.
        further: cores that are not in the paper, each with an added row.

    Raises:
        UserError: there is no such table.
    """
    scores = [one for one in algorithmic() if TASKS[one.task].trained_by() == command]
    if number not in {score.table for score in scores}:
        known = ", ".join(map(str, sorted({score.table for score in scores})))
        raise UserError(f"--table {number} is not a table of {command}, which has tables {known}")
    wanted = [score for score in scores if score.table == number]
    return [
        _figure(score, preset_name, epochs, changes or {})
        for score in [*wanted, *_unpublished(wanted, further)]
    ]


def _unpublished(
    scores: Sequence[AlgorithmicScore], cores: Sequence[str]
) -> list[AlgorithmicScore]:
    """Return a figure per added core, setting and measure, with sizes that the core has."""
    known = {score.core for score in scores}
    first: dict[tuple[str, str, str], AlgorithmicScore] = {}
    for score in scores:
        first.setdefault((score.task, score.setting, score.measure), score)
    return [
        score._replace(
            row=core_kind(core).systematic_name,
            core=core,
            sizes=_sizes_for(core, score),
            mean=None,
            std=None,
        )
        for score in first.values()
        for core in cores
        if core not in known
    ]


def _sizes_for(core: str, score: AlgorithmicScore) -> str:
    """Return the sizes in a table's row that fit another core: none of an LSTM's for blocks."""
    if score.core not in CORES:
        return ""
    own, rows = core_kind(core).options(), core_kind(score.core).options()
    if ("heads" in own) != ("heads" in rows):
        return ""
    return " ".join(pair for pair in score.sizes.split() if pair.partition("=")[0] in own)


def named_sizes(score: AlgorithmicScore) -> dict[str, int]:
    """Return the core's sizes given in the table's row."""
    pairs = (pair.split("=") for pair in score.sizes.split())
    return {name: int(size) for name, size in pairs}


def _figure(
    score: AlgorithmicScore,
    preset_name: str,
    epochs: int | None,
    changes: Mapping[str, Any],
) -> Figure:
    task = TASKS[score.task]
    settings = {name: int(value) for name, _, value in [score.setting.partition("=")] if name}
    of_task = {field.name for field in fields(task)} & set(changes)
    asked = task(**settings, **{name: changes[name] for name in of_task})
    changes = {name: changes[name] for name in changes if name not in of_task}
    if score.core not in CORES:  # a row with only the paper's figure
        options = replace(sequence_preset(preset_name, "lstm", asked), core=score.core, **changes)
        return Figure(score, options, {}, {})
    options = replace(sequence_preset(preset_name, score.core, asked), **changes)
    sizes, usual = _sizes(score, preset_name), _sizes_of(options)
    own = {name: size for name, size in sizes.items() if size != usual[name]}
    options = with_epochs_at_most(options.with_core(own), epochs)
    return Figure(score, options, sizes, own)


def _sizes_of(options: SequenceOptions) -> dict[str, Any]:
    """Return all options of the core, with defaults."""
    return vars(core_kind(options.core).config) | dict(options.core_options())


def _sizes(score: AlgorithmicScore, preset_name: str) -> dict[str, int]:
    by_table = SMALLER if "heads" in core_kind(score.core).options() else SMALLER_LSTM
    smaller = by_table.get(score.table, {}) if preset_name == "small" else {}
    named = named_sizes(score)
    return {name: size // smaller.get(name, 1) for name, size in named.items()}
