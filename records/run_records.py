"""Everything that a run writes in training: folder, log, checkpoints and TensorBoard files."""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from fastweights.host import UserError, write_bytes
from fastweights.records.checkpoint_folder import (
    CheckpointFolder,
    FoundCheckpoint,
    holds_checkpoints,
)
from fastweights.records.checkpoints import CheckpointError
from fastweights.records.run_folder import RunFolder
from fastweights.records.tensorboard import Scalars


class RunRecords:
    """The records of one run, which hold its folder until `finish`, `discard` or `close`.

    Args:
        folder: the run's folder, new or reopened.
        milestones: steps whose checkpoints are kept forever.
        keep_every: the same for all multiples of this number of steps; 0: none.
        beside: names and contents of files that a new run needs in addition to its checkpoints.
    """

    def __init__(
        self,
        folder: RunFolder,
        milestones: tuple[int, ...] = (),
        keep_every: int = 0,
        beside: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self.path = folder.path
        self.checkpoints = CheckpointFolder(folder.path, milestones, keep_every)
        self._folder, self._beside = folder, beside
        self._scalars: Scalars | None = None

    def newest(self, device: torch.device | str = "cpu") -> FoundCheckpoint | None:
        """Return the checkpoint to resume from; None if the run has none yet.

        Prints a warning for each newer checkpoint that is damaged. Repairs `best.pt` if the run was
        killed before linking it.

        Raises:
            CheckpointError: there are checkpoints, but none can be loaded; or the repair failed.
        """
        try:
            found = self.checkpoints.latest(device)
        except CheckpointError:
            if holds_checkpoints(self.path):
                raise
            return None
        for warning in found.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        self.checkpoints.mend_best(found)
        return found

    def begin(self, step: int, first: dict[str, Any] | None) -> None:
        """Remove log rows and milestones beyond `step`, and write a new run's first files.

        Args:
            step: the step at which training begins.
            first: the payload of a new run's first checkpoint; None for a run that resumes from a
                checkpoint, or that saves none.

        Raises:
            RunFolderError: the log could not be written; a new run's folder is removed.
            CheckpointError: a checkpoint could not be written or removed; as above.
            OSError: a file beside it could not be written; as above.
        """
        try:
            self._folder.rewind(step)
            self.checkpoints.rewind(step)
            if first is not None and not holds_checkpoints(self.path):
                for name, content in self._beside.items():
                    write_bytes(self.path / name, content)
                self.checkpoints.save(first, step)
        except (UserError, OSError):
            self.discard()
            raise
        resumed_at = step if "resumed" in self._folder.meta else None
        self._scalars = Scalars(self.path / "tensorboard", resumed_at)

    def log(self, row: dict[str, Any]) -> None:
        """Append a row to `logs.csv` and to TensorBoard's files. Raises `RunFolderError`."""
        self._folder.log(row)
        if self._scalars is not None:
            self._scalars.write(row)

    def finish(self, successful: bool = True) -> None:
        """Record the end of the run, and release its folder."""
        self._close_scalars()
        self._folder.finish(successful)

    def discard(self) -> None:
        """Release the folder, and remove a new run that did not start."""
        self._close_scalars()
        self._folder.discard(self._beside)

    def close(self) -> None:
        """Release the folder, whatever has happened; a second call does nothing."""
        self._close_scalars()
        self._folder.close()

    def _close_scalars(self) -> None:
        if self._scalars is not None:
            self._scalars.close()
            self._scalars = None
