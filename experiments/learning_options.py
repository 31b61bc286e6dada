"""The options that sequence-task and language-model runs share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from fastweights.cores import CoreSizes, core_kind, of_core
from fastweights.host import SEED, UserError, check_range, contradictions, expanded, typed_command
from fastweights.kernels import check_backend
from fastweights.records import read_meta
from fastweights.tasks import TASKS


@dataclass(frozen=True, kw_only=True)
class LearningOptions(CoreSizes, ABC):
    """The memory, and where and how a run computes."""

    core: str
    seed: int = 1
    """Seed for weights, dropout and batches, and for a language model's samples in training."""
    device: str = "auto"
    """Device: auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, mps."""
    num_threads: int = 0
    """Number of CPU threads; 0: one per CPU core."""
    kernels: str = "auto"
    """Backend of the recurrences: auto, reference, chunked, cpu or cuda; see docs/kernels.md.

    With reference or chunked, all other kernels are turned off, too.
    """
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; measurements on held-out data add further checkpoints."""
    profile: bool = False
    """Write the time spent in each stage (profile.txt) and a trace for Perfetto (trace.json)."""
    savedir: Path = Path("runs")
    """Folder that holds the run folders."""
    xpid: str | None = None
    """Name of the run folder (default: task, core and time)."""

    # Options that a resumed run may change: where and how it runs, not what it learns.
    changeable_on_resume: ClassVar[tuple[str, ...]] = (
        *("device", "num_threads", "checkpoint_minutes", "profile", "savedir", "xpid"),
    )

    @property
    @abstractmethod
    def task_name(self) -> str:
        """The task, as in `meta.json`."""

    @property
    @abstractmethod
    def command(self) -> str:
        """The command that trains on the task."""

    @abstractmethod
    def model(self) -> Any:
        """Return the model's configuration; it has `core` and `core_options`."""

    def with_core(self, wanted: Mapping[str, Any]) -> Self:
        """Return these options with changed core options, by their names in the core."""
        return replace(self, **of_core(self.core, wanted))

    def check(self) -> None:
        """Raise a one-line `ValueError` for an invalid value."""
        core_kind(self.core)
        check_backend(self.kernels)
        check_range("seed", self.seed, SEED)
        check_range("checkpoint_minutes", self.checkpoint_minutes, "(0, inf]")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        paths = {name: str(value) for name, value in own.items() if isinstance(value, Path)}
        return asdict(self) | paths | {"task_name": self.task_name}

    def flat(self) -> dict[str, Any]:
        """Return plain values by flag name, and `task_name`."""
        plain = self.to_dict()
        for field in fields(self):
            if is_dataclass(getattr(self, field.name)):
                plain |= plain.pop(field.name)
        return plain

    def implied(self) -> Sequence[str]:
        """Return the names of options that are implied by others and refused beside them."""
        return ()

    @classmethod
    @abstractmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Return the options from `to_dict`; raise a one-line `ValueError` for other dicts."""

    @classmethod
    def of_run(cls, path: Path, *commands: str) -> Self:
        """Return the options of the run at `path`, with its current folder.

        Raises:
            UserError: there is no run, or it belongs to another command; one line.
        """
        path = expanded(path)
        stored = read_meta(path).get("args", {})
        task = stored.get("task_name")
        is_agent = not isinstance(task, str)  # an agent's options name no task
        own = "atari" if is_agent else TASKS[task].trained_by() if task in TASKS else task
        if own not in commands:
            whose = "an agent's run" if is_agent else f"a run of {task}"
            raise UserError(f"{path} is {whose}: use {typed_command(own)}")
        try:
            return replace(cls.from_dict(stored), savedir=path.resolve().parent)
        except ValueError as error:
            raise UserError(
                f"{path} was written by another version of the program ({error}): check out the "
                "revision named in its meta.json"
            ) from error


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise a one-line `ValueError` if a table has no seeds, or a seed twice."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError("--seeds needs at least one seed, and each only once")
    for seed in seeds:
        check_range("seeds", seed, SEED)


def differing_learning_options(saved: LearningOptions, asked: LearningOptions) -> list[str]:
    """Return the changes in `asked` that a resumed run may not make: `--core lstm (was rdn)`."""
    return contradictions(saved.flat(), asked.flat(), saved.changeable_on_resume)


def changed_learning_options(before: LearningOptions, after: LearningOptions) -> dict[str, Any]:
    """Return the options of `after`, as plain values, that differ from `before`."""
    old, new = before.flat(), after.flat()
    return {name: new[name] for name in new if name not in old or old[name] != new[name]}
