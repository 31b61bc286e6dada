"""The checkpoints that a run keeps, and the checkpoint that it resumes from.

    RUN/model.tar                                  the newest, by TorchBeast's name
    RUN/checkpoints/step_000001234567.pt           the newest three, by agent steps
    RUN/checkpoints/best.pt                        the best score so far
    RUN/checkpoints/milestone_000050000000.pt      the first at or after each milestone

All but `step_*` are hard links if the file system supports them, so they take no space until the
original file is removed. The score is stored in the checkpoint, so that it agrees with `best.pt`
even after a crash.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fastweights.host import link_or_copy, remove_partials
from fastweights.records.checkpoints import CheckpointError, cannot_write, load_checkpoint, write
from fastweights.records.run_folder import runs_near

_NEWEST = 3  # checkpoints to keep, in addition to the best and the milestones
MILESTONES = (50_000_000, 200_000_000)  # agent steps of the published figures


class FoundCheckpoint(NamedTuple):
    """A checkpoint to resume from."""

    path: Path
    payload: dict[str, Any]
    warnings: tuple[str, ...]  # one line per newer checkpoint that could not be used


def _is_kept_from_us(error: CheckpointError) -> bool:
    """Return whether the file exists but could not be read: it may be intact."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(
        cause, FileNotFoundError | IsADirectoryError
    )


def holds_checkpoints(run: Path) -> bool:
    """Return whether a run has checkpoints, intact or damaged; partial files do not count."""
    return (run / "model.tar").exists() or any((run / "checkpoints").glob("[!.]*.pt"))


def run_of(path: Path) -> Path:
    """Return the run folder of a checkpoint or a `checkpoints` folder; other folders unchanged."""
    folder = path if path.is_dir() else path.parent
    return folder.parent if folder.name == "checkpoints" else folder


class CheckpointFolder:
    """The checkpoints of the run folder `folder`. The constructor changes nothing on disk.

    `milestones`: agent steps whose checkpoints are kept forever. `keep_every`: the same for all
    multiples of this number; 0: none. Only one process may `save`; any process may call `latest` at
    the same time.
    """

    def __init__(
        self, folder: Path, milestones: tuple[int, ...] = MILESTONES, keep_every: int = 0
    ) -> None:
        self.folder = Path(folder)
        self.newest_path = self.folder / "model.tar"
        self.best_path = self.folder / "checkpoints" / "best.pt"
        self._checkpoints = self.folder / "checkpoints"
        self._milestones, self._keep_every = milestones, keep_every
        self._best_score: float | None = None
        self._opened = False

    @property
    def best_score(self) -> float:
        """The score of `best.pt`; minus infinity if there is none yet."""
        if self._best_score is None:
            self._best_score = self._read_best_score()
        return self._best_score

    def save(
        self,
        payload: dict[str, Any],
        step: int,
        score: float | None = None,
        *,
        provisional: bool = False,
    ) -> Path:
        """Save `payload` with `step` and `score`, update the links, and remove old checkpoints.

        Checkpoints with a larger step, which predate a rewind, are removed, too.

        Args:
            payload: plain values and tensors.
            step: agent steps so far.
            score: higher is better; None or NaN is never the best.
            provisional: the score covers too few games to compare; any later score replaces it.

        Raises:
            CheckpointError: could not write; every earlier checkpoint is still there.
        """
        self._remove_leftovers()
        path = self._checkpoints / f"step_{step:012d}.pt"
        score = None if score is None or math.isnan(score) else float(score)
        try:
            marks = {"step": int(step), "score": score, "provisional": provisional}
            write({**payload, **marks}, path)
        except OSError as error:
            raise cannot_write(path, error, self._what_is_kept()) from error
        try:
            self._update_links(path, step, score, provisional)
            self._drop_old(step)
        except OSError as error:
            raise cannot_write(self.newest_path, error, self._what_is_kept()) from error
        return path

    def latest(self, map_location: str | torch.device = "cpu") -> FoundCheckpoint:
        """Return the newest loadable checkpoint, with a warning for each newer one that fails.

        Raises:
            CheckpointError: there is none, none can be loaded, or access to the newest is denied.
        """
        failures: list[CheckpointError] = []
        for path in self._newest_first():
            try:
                payload = _with_step(load_checkpoint(path, map_location), path)
            except CheckpointError as error:
                if _is_kept_from_us(error):
                    raise
                failures.append(error)
                continue
            notes = tuple(f"{failure}; continuing from {path}" for failure in failures)
            return FoundCheckpoint(path, payload, notes)
        if failures:
            raise failures[0]
        if (self.folder / "meta.json").exists():
            reason = "the run ended before its first or had --disable-checkpoint, or this is a copy"
        else:
            reason = runs_near(self.folder)
        raise CheckpointError(f"no checkpoint in {self.folder}: {reason}")

    def _update_links(self, path: Path, step: int, score: float | None, provisional: bool) -> None:
        link_or_copy(path, self.newest_path)
        for milestone in self._milestones_up_to(step):
            kept = self._checkpoints / f"milestone_{milestone:012d}.pt"
            if not kept.exists():
                link_or_copy(path, kept)
        if score is not None and score > self.best_score:
            self.link_best(path, -math.inf if provisional else score)

    def _milestones_up_to(self, step: int) -> Iterator[int]:
        yield from (milestone for milestone in self._milestones if milestone <= step)
        if self._keep_every and step >= self._keep_every:
            yield step - step % self._keep_every

    def rewind(self, step: int) -> None:
        """Remove milestones of later steps, for a run resumed at `step`: they are of another past.

        Raises:
            CheckpointError: a file cannot be removed.
        """
        for path in sorted(self._checkpoints.glob("milestone_*.pt"), reverse=True):
            if not self._is_beyond(path, step):
                return
            try:
                path.unlink()
            except OSError as error:
                raise cannot_write(path, error, self._what_is_kept()) from error

    def _is_beyond(self, path: Path, step: int) -> bool:
        """Return whether a milestone, the first checkpoint at or after it, is later than `step`."""
        if _step_of(path) > step:
            return True
        try:
            return _with_step(load_checkpoint(path), path)["step"] > step
        except CheckpointError:
            return False

    def link_best(self, path: Path, score: float) -> None:
        """Make `path` the best checkpoint, regardless of the previous best."""
        self.best_path.parent.mkdir(exist_ok=True)
        link_or_copy(path, self.best_path)
        self._best_score = score

    def mend_best(self, found: FoundCheckpoint) -> None:
        """Link `best.pt` to the newest checkpoint `found` if a kill came before that link.

        Raises:
            CheckpointError: could not write; every checkpoint is still there.
        """
        score = found.payload.get("score")
        if not isinstance(score, int | float) or found.payload.get("provisional"):
            return
        if score > self.best_score:
            try:
                self.link_best(found.path, score)
            except OSError as error:
                raise cannot_write(self.best_path, error, self._what_is_kept()) from error

    def _what_is_kept(self) -> str:
        newest = next(iter(self._steps_newest_first()), None)
        if newest is None:
            return "the run has no other checkpoint"
        return f"the checkpoint of step {_step_of(newest):,} is intact, and --resume will use it"

    def _drop_old(self, step: int) -> None:
        kept = 0
        for path in self._steps_newest_first():
            current = _step_of(path) <= step
            kept += current
            if not current or kept > _NEWEST:
                path.unlink()

    def _read_best_score(self) -> float:
        try:
            best = load_checkpoint(self.best_path)
        except CheckpointError:
            return -math.inf  # none yet, or damaged: the next scored checkpoint replaces it
        score = best.get("score")
        compares = isinstance(score, int | float) and not best.get("provisional")
        return float(score) if compares else -math.inf

    def _remove_leftovers(self) -> None:
        if not self._opened:
            remove_partials(self._checkpoints)
            remove_partials(self.folder, self.newest_path.name)
            self._opened = True

    def _steps_newest_first(self) -> list[Path]:
        paths = (path for path in self._checkpoints.glob("step_*.pt") if _step_of(path) >= 0)
        return sorted(paths, key=_step_of, reverse=True)

    def _newest_first(self) -> list[Path]:
        milestones = sorted(self._checkpoints.glob("milestone_*.pt"), reverse=True)
        others = [self.newest_path, *milestones, self.best_path]
        return self._steps_newest_first() + [path for path in others if path.exists()]


def _with_step(payload: dict[str, Any], path: Path) -> dict[str, Any]:
    step = payload.get("step")
    if type(step) is not int or step < 0:
        raise CheckpointError(f"checkpoint {path} cannot be used: it has no step count")
    return payload


def _step_of(path: Path) -> int:
    digits = path.stem.rpartition("_")[-1]
    return int(digits) if digits.isdigit() else -1
