"""The cells of a paper's table: what to run for each, and what is there of it."""

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from cores import CORES, core_kind
from launch.failures import UserError
from launch.json_files import read_object
from launch.published_scores import AlgorithmicScore, algorithmic
from launch.run_folder import read_meta
from launch.sequence_data import sequences
from launch.sequence_options import SequenceOptions, differences, flat, preset, with_sizes
from launch.sequence_run import RESULT
from tasks import Task

# What the small preset divides the sizes of these tables by: LSTMs', and all others'.
SMALLER_LSTM = {6: {"width": 2}, 7: {"width": 8}}
SMALLER = {6: {"layers": 2, "width": 4, "heads": 4, "feedforward": 4}}
OF_CELLS = ("device", "kernels", "data", "legacy_conditional_assign")
_SCRIPTS = Path(__file__).parent


class Run(NamedTuple):
    """A cell's training with one seed."""

    name: str  # of its folder
    options: SequenceOptions

    @property
    def path(self) -> Path:
        return self.options.savedir / self.name

    @property
    def finished(self) -> bool:
        return (self.path / RESULT).exists()

    def command(self) -> list[str] | None:
        """What starts it or goes on with it; None where it has finished."""
        if self.finished:
            return None
        options, script = self.options, _SCRIPTS / f"{self.options.task.name}.py"
        if not (self.path / "meta.json").exists():
            asked = flags(replace(options, num_threads=1, xpid=self.name))
            return [sys.executable, str(script), *asked]
        asked = ["--resume", str(self.path), "--num-threads", "1", "--device", options.device]
        asked += ["--data", str(options.data)] if options.data else []
        return [sys.executable, str(script), *asked]

    def check(self) -> None:
        """Raises a one-line `UserError` where the folder holds a run of other options."""
        if not self.finished and not (self.path / "meta.json").exists():
            return
        try:
            stored = SequenceOptions.from_dict(read_meta(self.path).get("args", {}))
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"{self.path} is no run of this table: {error}") from error
        if different := differences(stored, self._with_window()):
            raise UserError(
                f"{self.path} holds another run than the table's, which has "
                f"{', '.join(different)}: move it away, or name another --runs"
            )
        if self.finished:
            self.result()  # a damaged one is said now, not when all others have been trained

    def result(self) -> dict[str, Any]:
        """What it came to, the commit that it began at, and its own options and seed.

        Raises a one-line `UserError` for a damaged file.
        """
        meta = read_meta(self.path)
        try:
            result = read_object(self.path / RESULT)
        except (OSError, ValueError) as error:
            raise self.damaged(error) from error
        commit, own = (meta.get("git") or {}).get("commit"), meta["args"]
        return result | {"commit": commit, "seed": own["seed"], "options": without_folders(own)}

    def damaged(self, error: Exception) -> UserError:
        """The error that says so."""
        return UserError(
            f"{self.path / RESULT} is damaged ({error}): delete it, and it is measured again"
        )

    def _with_window(self) -> SequenceOptions:
        """The options as a run keeps them: attention reaches over the longest sequence drawn."""
        if "window" not in core_kind(self.options.core).options():
            return self.options
        drawn = sequences(self.options).values()
        return self.options.reaching(max(int(split.lengths.max()) for split in drawn))


class Cell(NamedTuple):
    """One figure of the paper, and what to run for it."""

    published: AlgorithmicScore
    options: SequenceOptions
    sizes: dict[str, int]  # of the core, where the table names them
    own_sizes: dict[str, int]  # and those of them that the preset has otherwise

    @property
    def has_papers_sizes(self) -> bool:
        return self.sizes == named_sizes(self.published)

    @property
    def folder(self) -> str:
        """What a run's name begins with; cells of one training share it."""
        setting = self.published.setting.replace("=", "")
        sizes = [f"{name}{size}" for name, size in self.own_sizes.items()]
        parts = [labelled(self.options.task), setting, self.options.core, *sizes]
        return "-".join(filter(None, parts))

    def run(self, seed: int) -> Run:
        return Run(f"{self.folder}-seed{seed}", replace(self.options, seed=seed))


def labelled(task: Task) -> str:
    """The task's name, and whether its labels are the published generator's: they never mix."""
    legacy = getattr(task, "legacy_conditional_assign", False)
    return f"{task.name}-legacy" if legacy else task.name


def cells(
    task: type[Task],
    number: int,
    preset_name: str,
    epochs: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """The table's figures in the paper's order.

    `epochs`: at most so many. `changes`: options of `OF_CELLS`, and `savedir`, for all of them.
    Raises `UserError` for a table there is not.
    """
    scores = [score for score in algorithmic() if score.task == task.name]
    if number not in {score.table for score in scores}:
        known = ", ".join(map(str, sorted({score.table for score in scores})))
        raise UserError(f"--table {number} has no {task.name}; tables that have: {known}")
    return [
        _cell(task, score, preset_name, epochs, changes or {})
        for score in scores
        if score.table == number
    ]


def named_sizes(score: AlgorithmicScore) -> dict[str, int]:
    """The core's, as the table's row names them."""
    pairs = (pair.split("=") for pair in score.sizes.split())
    return {name: int(size) for name, size in pairs}


def flags(options: SequenceOptions) -> list[str]:
    """The command line that gives these options, whatever the preset."""
    plain, given = flat(options), []
    del plain["task_name"]
    for name, value in plain.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            given.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            given += [f"--{flag}", str(value)]
    return given


def without_folders(plain: dict[str, Any]) -> dict[str, Any]:
    """A run's plain options without what is somebody's own."""
    return {name: plain[name] for name in plain if name not in ("savedir", "data")}


def _cell(
    task: type[Task],
    score: AlgorithmicScore,
    preset_name: str,
    epochs: int | None,
    changes: Mapping[str, Any],
) -> Cell:
    name, value = score.setting.split("=")
    of_task = {field.name for field in fields(task)} & set(changes)
    asked = task(**{name: int(value)}, **{name: changes[name] for name in of_task})
    changes = {name: changes[name] for name in changes if name not in of_task}
    if score.core not in CORES:  # the paper's figure stands alone
        options = replace(preset(preset_name, "lstm", asked), core=score.core, **changes)
        return Cell(score, options, {}, {})
    options = replace(preset(preset_name, score.core, asked), **changes)
    sizes, usual = _sizes(score, preset_name), _sizes_of(options)
    own = {name: size for name, size in sizes.items() if size != usual[name]}
    options = with_sizes(options, own)
    if epochs is not None:
        fewer = min(epochs, options.trainer.epochs)
        options = replace(options, trainer=replace(options.trainer, epochs=fewer))
    return Cell(score, options, sizes, own)


def _sizes_of(options: SequenceOptions) -> dict[str, Any]:
    """All options of the core, by default and as they are set."""
    return vars(core_kind(options.core).config) | dict(options.core_options())


def _sizes(score: AlgorithmicScore, preset_name: str) -> dict[str, int]:
    by_table = SMALLER_LSTM if score.core == "lstm" else SMALLER
    smaller = by_table.get(score.table, {}) if preset_name == "small" else {}
    named = named_sizes(score)
    return {name: size // smaller.get(name, 1) for name, size in named.items()}
