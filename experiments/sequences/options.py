"""The options for training on a sequence task."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import tyro

from fastweights.cores import core_kind, set_by_models
from fastweights.experiments.learning_options import LearningOptions
from fastweights.host import COUNT, SEED, check_range, check_ranges, flag, flags_in, typed_whole
from fastweights.tasks import TASKS, ModelConfig, SequenceModel, Task, TrainerConfig, split_sizes

Question = TypeVar("Question", bound=Task)
SIZES = ("train_size", "valid_size", "test_size")
LSTM_EMBEDDING = 128  # Irie et al. 2021, appendix B.2
LONGEST_TEST = 1_000_000  # a mistyped length gives an error, not hours of work


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(LearningOptions, Generic[Question]):
    """All options of a run on a sequence task: what it computes, and where it runs."""

    task: tyro.conf.OmitArgPrefixes[Question]
    core: str = "delta_net"
    """Memory, or my_module:name for your own (docs/cores.md)."""
    core_dropout: float | None = None
    """Dropout rate in each residual block."""
    embedding: int | None = None
    """Size of the word embeddings (default: the model width of residual blocks, else 128)."""
    dropout: float = 0.0
    """Dropout rate of the embeddings and of the core's output, for cores without blocks."""
    decoder: int = 0
    """Number of hidden units between the core's output and the answer; 0: no such layer."""
    trainer: tyro.conf.OmitArgPrefixes[TrainerConfig] = field(default_factory=TrainerConfig)
    train_size: int = 10_000
    """Number of training sequences."""
    valid_size: int = 1_000
    """Number of held-out sequences, which select the best epoch."""
    test_size: int = 1_000
    """Number of sequences per test split."""
    test_lengths: tuple[int, ...] = ()
    """Formal languages: sizes of further test strings. Within --sizes, these may be strings of the
    training split."""
    length_size: int = 100
    """Number of strings per size in --test-lengths."""
    legacy_selection: bool = False
    """Formal languages: let Bin0 and Bin1 themselves select the weights and end training, as in the
    published code, which counts whole strings only, however."""
    data_seed: int = 1
    """Seed for generating the sequences."""

    files: Path | None = None
    """Folder of token files (train.src, train.tgt, ...) from which to read all sequences. Without
    selection.src (valid.src for tasks other than formal languages), every tenth training sequence
    is held out to select the weights, even if another training sequence equals it."""
    data: Path | None = None
    """Folder that caches the sequences (default: beside the runs, named by their settings)."""
    changeable_on_resume = (*LearningOptions.changeable_on_resume, "data")

    @property
    def task_name(self) -> str:
        """The task, as in `meta.json`."""
        return self.task.name

    @property
    def command(self) -> str:
        """The command that trains on the task."""
        return self.task.trained_by()

    def check(self) -> None:
        """Raise a one-line `ValueError` for an invalid value."""
        super().check()
        self.task.check()
        self.trainer.check()
        check_ranges(self, COUNT, "train_size", "valid_size", "test_size", "length_size")
        if self.legacy_selection and not self.task.has_lengths:
            raise ValueError(
                "--legacy-selection is only for formal languages: other published results were "
                "selected on the held-out split"
            )
        self._check_test_lengths()
        check_range("data_seed", self.data_seed, SEED)
        check_range("core_dropout", self.core_dropout, "[0, 1)")

    def _check_test_lengths(self) -> None:
        lengths: dict[int, int] = {}  # by the sizes of their strings
        for length in self.test_lengths:
            if not 1 <= length <= LONGEST_TEST:
                raise ValueError(f"--test-lengths must lie in 1 to {LONGEST_TEST:,}, not {length}")
            try:
                size = self.task.size_up_to(length)
            except ValueError as error:
                raise ValueError(f"--test-lengths: {error}") from error
            if size in lengths:
                raise ValueError(
                    f"--test-lengths {lengths[size]} {length}: both mean strings of size {size}; "
                    "give one of them"
                )
            lengths[size] = length

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of sequences in each of the task's splits."""
        return split_sizes(self.task, self.train_size, self.valid_size, self.test_size)

    @property
    def selecting(self) -> tuple[str, ...]:
        """The splits that select the best weights and end training."""
        return self.task.splits[2:] if self.legacy_selection else ("valid",)

    @property
    def selection_mark(self) -> str:
        """The mark of --legacy-selection in folder and file names."""
        return "-legacy-selection" if self.legacy_selection else ""

    def model(self) -> ModelConfig:
        """Return the model's options.

        Residual blocks read embeddings of the model width; other cores read `embedding` units.
        """
        options = dict(self.core_options())
        default = LSTM_EMBEDDING
        if "embed" in set_by_models(self.core) and self.embedding is None:
            default = options.get("width", core_kind(self.core).config.width)
            options["embed"] = "none"
        return ModelConfig(
            core=self.core,
            core_options=tuple(options.items()),
            embedding=default if self.embedding is None else self.embedding,
            dropout=self.dropout,
            decoder=self.decoder,
        )

    def implied(self) -> Sequence[str]:
        """Return the sizes and the data file if `files` provides all sequences."""
        return (*SIZES, "data") if self.files else ()

    def reaching(self, longest: int) -> "SequenceOptions":
        """Return options with attention over `longest` words, unless a window is set."""
        if self.core_window is None and core_kind(self.core).attends:
            return replace(self, core_window=longest)
        return self

    def build(self) -> SequenceModel:
        """Return the model, with new weights."""
        return SequenceModel(len(self.task.words), len(self.task.answers), self.model())

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "SequenceOptions":
        """Return the options that `to_dict` described; raise a one-line `ValueError` for others."""
        name = plain.get("task_name") if isinstance(plain, dict) else None
        if not isinstance(name, str) or name not in TASKS:
            raise ValueError(f"task_name must be one of {', '.join(TASKS)}")
        return typed_whole(cls, plain, {"task": TASKS[name], "trainer": TrainerConfig})


def check_own_options(words: Sequence[str], task: type[Task], others: Iterable[type[Task]]) -> None:
    """Raise a one-line `ValueError` for an option that another task has but `task` lacks.

    Args:
        words: the command line's arguments.
        task: the selected task.
        others: the tasks of the same command.
    """
    given = flags_in(words)
    several = [name for name in ("--table", "--summary") if name in given]
    instead = f"; the runs of {several[0]} have the tasks' defaults" if several else ""
    for other in others:
        for name in (one.name for one in fields(other) if not hasattr(task, one.name)):
            for spelling in (flag(name), flag(f"no_{name}")):
                if spelling in given:
                    raise ValueError(f"{spelling} is an option of --task {other.name}{instead}")


# Feature maps in the published code for sequences (these tasks and language models) that differ
# from those of the published agents.
RECURRENT_MAPS = {"feature_map": "elu_sum", "recurrent_feature_map": "softmax"}
PUBLISHED_MAPS = {
    "lt": {"feature_map": "elu"},  # not normalised
    "delta_mlp": {"feature_map": "elu_sum"},
    "delta_delta": {"feature_map": "elu_sum"},
    "delta_rnn": RECURRENT_MAPS,
    "delta_lstm": RECURRENT_MAPS,
    "srwm": {"input_map": "identity"},
}


def with_epochs_at_most(options: SequenceOptions, epochs: int | None) -> SequenceOptions:
    """Return the options with at most `epochs` epochs, for a first look; None: unchanged."""
    fewer = min(epochs or options.trainer.epochs, options.trainer.epochs)
    return replace(options, trainer=replace(options.trainer, epochs=fewer))
