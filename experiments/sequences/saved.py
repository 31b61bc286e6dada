"""A trained model on a sequence task, from its run folder, and checks of a run's checkpoints."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fastweights.cores import import_core
from fastweights.experiments.learning import check_same_run
from fastweights.experiments.learning_options import differing_learning_options
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.host import one_of
from fastweights.records import (
    CheckpointError,
    CheckpointFolder,
    built_for,
    fitting,
    load_checkpoint,
    resolved_run,
)
from fastweights.tasks import TASKS, SequenceModel
from fastweights.training import check_known_core


class SavedSequenceModel(NamedTuple):
    """The best weights of a run, on the CPU, and the run's options."""

    model: SequenceModel
    options: SequenceOptions

    def answers(self, words: Sequence[str]) -> list[str]:
        """Return the most probable answer after each word, even if the task asks for none there.

        Raises:
            ValueError: a word that the task does not have; one line.
        """
        known = {word: number for number, word in enumerate(self.options.task.words)}
        numbers = [known[one_of("word", word, known)] for word in words]
        tokens = torch.tensor(numbers, dtype=torch.int64)[:, None]
        with torch.no_grad():
            logits = self.model(tokens, torch.ones_like(tokens, dtype=torch.bool))
        return [self.options.task.answers[number] for number in logits.argmax(-1)]


def open_sequence_model(
    path: Path | str, command: str | None = None, core: str | None = None
) -> SavedSequenceModel:
    """Return the trained model of the run folder at `path`.

    Args:
        path: the run folder.
        command: the command that the run must belong to, such as `list_ops`; None for any.
        core: a memory in a user's module (`my_module:name`), which is then imported.

    Raises:
        ValueError: the memory cannot be imported; one line.
        UserError: there is no such run; one line.
        CheckpointError: a file is damaged; one line.
    """
    import_core(core)
    path = resolved_run(Path(path))
    options = saved_sequence_options(path, command)
    check_known_core(options.core, path)
    best = load_checkpoint(CheckpointFolder(path, milestones=()).best_path, torch.device("cpu"))
    check_own(best, options, path)
    with fitting(path):
        model = built_for(kept_weights(best), options.build)
    return SavedSequenceModel(model.eval(), options)


def saved_sequence_options(path: Path, command: str | None = None) -> SequenceOptions:
    """Return the options of the run at `path`, without its folders.

    Raises:
        UserError: there is no run, or it does not belong to `command`; one line.
    """
    commands = {task.trained_by() for task in TASKS.values()} if command is None else {command}
    # The command line specifies the data file again.
    return replace(SequenceOptions.of_run(path, *commands), data=None)


def check_own(payload: dict[str, Any], options: SequenceOptions, path: Path) -> None:
    """Raise a one-line `CheckpointError` if a checkpoint has other options than the run."""
    check_task(payload, options, path)
    with fitting(path):
        saved = SequenceOptions.from_dict(payload["flags"]).reaching(options.core_window)
    check_same_run(path, differing_learning_options(saved, options))


def check_task(payload: dict[str, Any], options: SequenceOptions, path: Path) -> None:
    """Raise a one-line `CheckpointError` if a checkpoint belongs to another task than the run."""
    with fitting(path):
        name = payload["flags"].get("task_name")
        if name != options.task.name:
            other = name or "an agent"
            raise CheckpointError(f"{path} is a checkpoint of {other}, not of {options.task.name}")


def kept_weights(best: dict[str, Any]) -> dict[str, Tensor]:
    """Return the weights that a checkpoint's score belongs to: averages, if the run has them."""
    average = best["trainer"].get("average")
    if average is None:
        return best["model_state_dict"]
    own = "module."
    return {n.removeprefix(own): value for n, value in average.items() if n.startswith(own)}
