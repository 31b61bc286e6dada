"""The options of training on a sequence task."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import tyro

from fastweights.cores import core_kind
from fastweights.cores.options import CoreSizes, of_core
from fastweights.host.flags import check_at_least, contradictions
from fastweights.host.typed_fields import typed_whole
from fastweights.kernels import check_backend
from fastweights.tasks import TASKS, Task
from fastweights.tasks.sequence_model import ModelConfig, SequenceModel
from fastweights.tasks.sequences import split_sizes
from fastweights.tasks.train import TrainerConfig

Question = TypeVar("Question", bound=Task)
LSTM_EMBEDDING = 128  # Irie et al. 2021, appendix B.2
LONGEST_TEST = 1_000_000  # a mistyped length gives an error, not hours of work


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(CoreSizes, Generic[Question]):
    """All options of a run on a sequence task: what it computes, and where it runs."""

    task: tyro.conf.OmitArgPrefixes[Question]
    core: str = "delta_net"
    """Memory; the command `atari` shows them all with --list-cores."""
    core_dropout: float | None = None
    """Dropout rate in each residual block."""
    embedding: int | None = None
    """Size of a word's vector (default: the model width of residual blocks, else 128)."""
    dropout: float = 0.0
    """Dropout rate of the word's vector and of the core's output; for cores without blocks."""
    decoder: int = 0
    """Hidden units between the core's output and the answer; 0: no such layer."""
    trainer: tyro.conf.OmitArgPrefixes[TrainerConfig] = field(default_factory=TrainerConfig)
    train_size: int = 10_000
    """Number of training sequences."""
    valid_size: int = 1_000
    """Number of held-out sequences, which select the best epoch."""
    test_size: int = 1_000
    """Number of test sequences in each test split."""
    test_lengths: tuple[int, ...] = ()
    """Lengths of further test sequences; of formal languages."""
    length_size: int = 100
    """Number of sequences of each of --test-lengths."""
    data_seed: int = 1
    """Seed of the sequences."""
    seed: int = 1
    """Seed of weights, dropout and the order of batches."""

    files: Path | None = None
    """Folder of token files (train.src, train.tgt, ...) to read the sequences from."""
    data: Path | None = None
    """Folder that keeps the sequences (default: beside the runs, named by their settings)."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, cuda:1, mps."""
    num_threads: int = 0
    """CPU threads; 0: all cores."""
    kernels: str = "auto"
    """Backend of the recurrences: auto, reference, chunked, cpu or cuda; see docs/kernels.md.

    With reference or chunked, all other kernels of this project are turned off, too.
    """
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; the end of each epoch has one too."""
    profile: bool = False
    """Write where the time goes: profile.txt, and trace.json for chrome://tracing or Perfetto."""
    savedir: Path = Path("runs")
    """Folder of the run folders."""
    xpid: str | None = None
    """The run folder's name (default: task, core and time)."""

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of sequences in each of the task's splits."""
        return split_sizes(self.task, self.train_size, self.valid_size, self.test_size)

    def model(self) -> ModelConfig:
        """Return the model's options.

        Residual blocks read words' vectors directly; other cores read `embedding` units.
        """
        options = dict(self.core_options())
        default = LSTM_EMBEDDING
        if "embed" in core_kind(self.core).options() and self.embedding is None:
            default = options.get("width", core_kind(self.core).config.width)
            options["embed"] = "none"
        return ModelConfig(
            core=self.core,
            core_options=tuple(options.items()),
            embedding=default if self.embedding is None else self.embedding,
            dropout=self.dropout,
            decoder=self.decoder,
        )

    def reaching(self, longest: int) -> "SequenceOptions":
        """Return options with attention over `longest` words, unless a window was given."""
        if self.core_window is None and "window" in core_kind(self.core).options():
            return replace(self, core_window=longest)
        return self

    def build(self) -> SequenceModel:
        """Return the model, with new weights."""
        return SequenceModel(len(self.task.words), len(self.task.answers), self.model())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, which `from_dict` reads."""
        paths = {name: getattr(self, name) for name in ("data", "files", "savedir")}
        plain = {name: None if path is None else str(path) for name, path in paths.items()}
        return asdict(self) | plain | {"task_name": self.task.name}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "SequenceOptions":
        """Return the options that `to_dict` described; raise a one-line `ValueError` for others."""
        name = plain.get("task_name") if isinstance(plain, dict) else None
        if not isinstance(name, str) or name not in TASKS:
            raise ValueError(f"task_name must be one of {', '.join(TASKS)}")
        return typed_whole(cls, plain, {"task": TASKS[name], "trainer": TrainerConfig})


# Options that a resumed run may change: where and how it runs, not what it learns.
CHANGEABLE_ON_RESUME = (
    *("data", "device", "num_threads", "checkpoint_minutes", "profile", "savedir", "xpid"),
)


def check(options: SequenceOptions) -> None:
    """Raise a one-line `ValueError` for a value that is not allowed."""
    options.task.check()
    options.trainer.check()
    core_kind(options.core)
    check_backend(options.kernels)
    check_at_least(options, 1, "train_size", "valid_size", "test_size", "length_size")
    if options.test_lengths and not options.task.has_lengths:
        raise ValueError(f"--test-lengths: the lengths of {options.task.name} cannot be chosen")
    for length in options.test_lengths:
        if not 1 <= length <= LONGEST_TEST:
            raise ValueError(f"--test-lengths must lie in 1 to {LONGEST_TEST:,}, not {length}")
    check_seed("--seed", options.seed)
    check_seed("--data-seed", options.data_seed)
    if options.core_dropout is not None and not 0 <= options.core_dropout < 1:
        raise ValueError(f"--core-dropout must lie in [0, 1), not {options.core_dropout}")
    if options.core_forget_bias is not None and not math.isfinite(options.core_forget_bias):
        raise ValueError(f"--core-forget-bias must be a number, not {options.core_forget_bias}")
    if not options.checkpoint_minutes > 0:
        raise ValueError(f"--checkpoint-minutes must be above 0, not {options.checkpoint_minutes}")


def check_seed(flag: str, seed: int) -> None:
    """Raise a one-line `ValueError` for a seed out of range."""
    if not 0 <= seed < 2**31:
        raise ValueError(f"{flag} must lie in [0, 2^31), not {seed}")


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise a one-line `ValueError` for the seeds of a table that has none, or one twice."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError("--seeds needs at least one, and each of them once")
    for seed in seeds:
        check_seed("--seeds", seed)


def differences(saved: SequenceOptions, asked: SequenceOptions) -> list[str]:
    """Return changes by `asked` that a resumed run may not make: `--core lstm (was rdn)`."""
    return contradictions(flat(saved), flat(asked), CHANGEABLE_ON_RESUME)


def changes(before: SequenceOptions, after: SequenceOptions) -> dict[str, Any]:
    """Return the options of `after`, as plain values, that differ from `before`."""
    old, new = flat(before), flat(after)
    return {name: new[name] for name in new if name not in old or old[name] != new[name]}


def flat(options: SequenceOptions) -> dict[str, Any]:
    """Return plain values by the names of their flags, and `task_name`."""
    plain = options.to_dict()
    nested = plain.pop("task") | plain.pop("trainer")
    return plain | nested


# Feature maps of the published code for sequences (these tasks and language models), if they differ
# from the published agents'.
RECURRENT_MAPS = {"feature_map": "elu_sum", "recurrent_feature_map": "softmax"}
PUBLISHED_MAPS = {
    "lt": {"feature_map": "elu"},  # not normalised
    "delta_mlp": {"feature_map": "elu_sum"},
    "delta_delta": {"feature_map": "elu_sum"},
    "delta_rnn": RECURRENT_MAPS,
    "delta_lstm": RECURRENT_MAPS,
    "srwm": {"input_map": "identity"},
}


def with_sizes(options: SequenceOptions, core_sizes: dict[str, int]) -> SequenceOptions:
    """Return the options with other sizes of the core."""
    return replace(options, **of_core(options.core, core_sizes))
