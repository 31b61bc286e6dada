"""A trained language model from a run folder, one of its checkpoints, or an export."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fastweights.cores import import_core
from fastweights.experiments.language_model.options import LANGUAGE_COMMAND, LanguageOptions
from fastweights.experiments.language_model.text import read_vocabulary
from fastweights.experiments.learning import RESULT_FILE
from fastweights.host import UserError, check_contained, read_object
from fastweights.records import (
    LANGUAGE_MODEL_EXPORT,
    CheckpointError,
    CheckpointFolder,
    built_for,
    fitting,
    is_export,
    load_checkpoint,
    resolved_run,
    run_of,
    runs_near,
)
from fastweights.tasks.language_model import LanguageModel, Vocabulary
from fastweights.training import check_kernels, check_known_core


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A trained model, its options and vocabulary, and its folder."""

    folder: Path
    step: int  # updates
    options: LanguageOptions
    vocabulary: Vocabulary = field(repr=False)
    model: LanguageModel = field(repr=False)
    payload: dict[str, Any] = field(repr=False)

    def results(self) -> dict[str, Any]:
        """Return the run's final measurements; nothing if they are of other weights."""
        try:
            found = read_object(self.folder / RESULT_FILE)
        except (OSError, ValueError):
            return {}
        return found if found.get("best_update") == self.step else {}


def open_model(
    path: Path | str, device: torch.device | str = "cpu", core: str | None = None
) -> SavedModel:
    """Return the best weights of a run, those of a checkpoint, or an export's.

    `core`: a memory in a user's module (`my_module:name`), which is then imported.

    Raises:
        ValueError: the memory cannot be imported, or cannot run on a forced backend; one line.
        UserError: there is no such model; one line.
        CheckpointError: a file is damaged; one line.
    """
    import_core(core)
    path = resolved_run(Path(path))
    if not path.exists():
        raise UserError(f"{path}: no such run; {runs_near(path)}")
    folder = path if path.is_dir() else run_of(path.resolve())
    check_contained(folder)
    if path.is_dir() and is_export(path):
        payload = LANGUAGE_MODEL_EXPORT.read(path)
    elif path.is_dir():
        LanguageOptions.of_run(path, LANGUAGE_COMMAND)  # names another task's run
        payload = _best(path)
    else:
        payload = load_checkpoint(path)
    vocabulary = read_vocabulary(folder)
    with fitting(path):
        options = LanguageOptions.from_dict(payload["flags"])
        check_known_core(options.core, path)
        if not is_export(folder):  # it may have been moved, or begun in another current folder
            options = replace(options, savedir=folder.resolve().parent)
        weights = payload["model_state_dict"]
        if len(weights["softmax.bias"]) != vocabulary.size:
            raise CheckpointError(
                f"{path} predicts {len(weights['softmax.bias']):,} types, but the vocabulary in "
                f"{folder} has {vocabulary.size:,}: restore the run's own vocabulary.json"
            )
        model = built_for(weights, lambda: options.build(vocabulary.size))
        step = payload["step"]
    if core is not None and core != options.core:
        raise UserError(f"{path} has the core {options.core}, not --core {core}")
    check_kernels(model.core, torch.device(device))
    return SavedModel(
        folder=folder,
        step=step,
        options=options,
        vocabulary=vocabulary,
        model=model.to(device).eval(),
        payload=payload,
    )


def _best(run: Path) -> dict[str, Any]:
    checkpoints = CheckpointFolder(run, milestones=())
    if checkpoints.best_path.exists():
        return load_checkpoint(checkpoints.best_path)
    return checkpoints.latest().payload
