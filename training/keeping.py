"""A run's files: its folder, log and checkpoints, written by the first learner."""

from pathlib import Path
from typing import Any

from fastweights.agents import Network
from fastweights.cores import network_facts
from fastweights.host import check_kept, expanded, user_input
from fastweights.records import (
    CheckpointError,
    CheckpointFolder,
    Metrics,
    RunFolder,
    RunFolderError,
    claim_xpid,
    read_meta,
)
from fastweights.training.loop import Training
from fastweights.training.options import RunOptions, changed_flags
from fastweights.training.replicas import Replicas
from fastweights.training.saved_agent import SavedAgent


class Kept:
    """Log and checkpoints of a new run, or of the run that `saved` belongs to.

    Raises:
        UserError: the folder cannot be made or opened; one line.
    """

    def __init__(self, options: RunOptions, saved: SavedAgent | None, network: Network) -> None:
        self._options, self._saved = options, saved
        self._folder = _open(options, saved, network)
        self.path = self._folder.path
        self._checkpoints = CheckpointFolder(self.path)
        begin = saved.step if saved else 0 if self._folder.meta.get("resumed") else None
        self.metrics = Metrics(self._folder.log, self.path / "tensorboard", begin)

    def last_save(self) -> dict[str, Any] | None:
        """Return the checkpoint to resume from, and remove later rows of the log.

        None for a new run.
        """
        if self._saved is None:
            return None
        # Read again under the lock: the run may have advanced since the first read.
        payload = self._checkpoints.latest().payload
        self._folder.rewind(payload["step"])
        return payload

    def save(self, training: Training) -> None:
        """Write a checkpoint, unless --disable-checkpoint is set. Raises `CheckpointError`."""
        if not self._options.disable_checkpoint:
            score = self.metrics.recent()["recent_full_game_return"]
            few = not self.metrics.window_is_full  # a lucky first game would stay the best
            self._checkpoints.save(training.checkpoint(), training.steps, score, provisional=few)

    def save_first(self, training: Training) -> None:
        """Write a new run's checkpoint of step 0 before anything is learned.

        If that fails, remove the folder made for the run and raise `CheckpointError`.
        """
        if self._saved is not None:
            return
        try:
            self.save(training)
        except CheckpointError:
            self._discard()
            raise

    def drop_if_nothing_came_of_it(self, training: Training) -> None:
        """Remove a new run that has learned nothing and whose test games have no scores."""
        scores = self.path / "evaluations"
        if self._saved is None and training.steps == 0 and not scores.exists():
            self._discard()

    def _discard(self) -> None:
        self.metrics.close()
        self._folder.discard()

    def finish(self, successful: bool) -> None:
        """Record the end of the run and release its folder."""
        self.metrics.close()
        self._folder.finish(successful)

    def close(self) -> None:
        """Release the run's folder, whatever has happened; a second call does nothing."""
        self.metrics.close()
        self._folder.close()


class NotKept:
    """The records of the other learners, with the methods of `Kept`: they write nothing."""

    def __init__(self) -> None:
        self.metrics = Metrics(lambda row: None)

    def last_save(self) -> None:
        """Return None: the first learner loads the checkpoint."""

    def save(self, training: Training) -> None:
        """Do nothing: the first learner writes checkpoints."""

    def finish(self, successful: bool) -> None:
        """Do nothing: the first learner records the end."""

    def close(self) -> None:
        """Do nothing: the first learner holds the folder."""


def mark_finished(saved: SavedAgent) -> None:
    """Record the end of a run that was killed after its last checkpoint, before it recorded it.

    A run that recorded a failure as its end keeps it. If torchrun started several processes, the
    first of them records.

    Raises:
        RunFolderError: not writable, or another process is writing the run; one line.
    """
    if not Replicas.from_environment().leads or not (saved.run / "meta.json").exists():
        return
    meta = read_meta(saved.run)
    if not meta.get("successful") and meta.get("date_end") is None:
        RunFolder.open(saved.run).finish()


def _open(options: RunOptions, saved: SavedAgent | None, network: Network) -> RunFolder:
    if saved:
        return RunFolder.open(saved.run, options.to_dict())
    xpid = options.xpid or claim_xpid(options.env, options.core, options.savedir)
    path: Path = expanded(options.savedir) / xpid
    if options.auto_resume and (path / "meta.json").exists():
        _check_can_begin_again(path, options)
        folder = RunFolder.open(path)
        folder.rewind(0)  # the run ended before its first checkpoint
        return folder
    facts = network_facts(network, options.core, dict(options.core_options()))
    return RunFolder.create(options.savedir, xpid, options.to_dict(), facts)


def _check_can_begin_again(path: Path, options: RunOptions) -> None:
    """Check that the run at `path`, without a checkpoint, has `options` and did not finish."""
    meta = read_meta(path)
    try:
        begun = RunOptions.from_dict(meta["args"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} holds no run that --auto-resume can resume") from error
    with user_input():
        check_kept(changed_flags(begun, options))
    if meta.get("successful"):
        raise RunFolderError(
            f"{path} has finished and has no checkpoint; beginning again would lose its log: "
            "choose another --xpid"
        )
