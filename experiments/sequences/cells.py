"""Runs of the sequence-task commands in a grid: models, each trained and then measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastweights.cores import core_kind
from fastweights.experiments.learning_cells import LearningRun
from fastweights.experiments.learning_options import differing_learning_options
from fastweights.experiments.sequences.data import longest_in, sequences_of, sized, with_files
from fastweights.experiments.sequences.options import SequenceOptions
from fastweights.tasks import Result


@dataclass(frozen=True)
class SequenceRun(LearningRun):
    """The training of one model on a sequence task."""

    options: SequenceOptions

    @property
    def measures(self) -> Mapping[str, Sequence[str]]:
        return dict.fromkeys(self.options.task.splits[1:], Result._fields)

    def differences(self, stored: dict[str, Any]) -> list[str]:
        return differing_learning_options(SequenceOptions.from_dict(stored), self._as_stored())

    def _as_stored(self) -> SequenceOptions:
        """Return the options as stored by a run.

        Attention spans the longest sequence, and sizes are those of the splits in `files`.
        """
        options = self.options
        if not (options.files or core_kind(options.core).attends):
            return options
        drawn = sequences_of(options)
        return sized(with_files(options, options), drawn).reaching(longest_in(drawn))
