"""The options that a sequence task's run and a language model's run share."""

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
    """The memory, and where and how a run computes it."""

    core: str
    seed: int = 1
    """Seed of weights, dropout and batches, and of a language model's samples in training."""
    device: str = "auto"
    """Device: auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, mps."""
    num_threads: int = 0
    """Number of CPU threads; 0: one per core."""
    kernels: str = "auto"
    """Backend of the recurrences: auto, reference, chunked, cpu or cuda; see docs/kernels.md.

    With reference or chunked, all other kernels of this project are turned off, too.
    """
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; measurements of held-out data add others."""
    profile: bool = False
    """Write where the time goes: profile.txt, and trace.json for chrome://tracing or Perfetto."""
    savedir: Path = Path("runs")
    """Folder of the run folders."""
    xpid: str | None = None
    """The run folder's name (default: task, core and time)."""

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
        """Return these options with other options of the core, by their names in the core."""
        return replace(self, **of_core(self.core, wanted))

    def check(self) -> None:
        """Raise a one-line `ValueError` for a value that is not allowed."""
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
        """Return plain values by the names of their flags, and `task_name`."""
        plain = self.to_dict()
        for field in fields(self):
            if is_dataclass(getattr(self, field.name)):
                plain |= plain.pop(field.name)
        return plain

    def implied(self) -> Sequence[str]:
        """Return the names of options that follow from others, beside which they are refused."""
        return ()

    @classmethod
    @abstractmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Return the options that `to_dict` described; raise a one-line `ValueError` for others."""

    @classmethod
    def of_run(cls, path: Path, *commands: str) -> Self:
        """Return the options of the run at `path`, with the folder that it is in now.

        Raises:
            UserError: there is no run, or not one of these commands; one line.
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
                f"{path} was made by another version of the program ({error}): check out the "
                "revision that its meta.json names"
            ) from error


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise a one-line `ValueError` for the seeds of a table that has none, or one twice."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError("--seeds needs at least one, and each of them once")
    for seed in seeds:
        check_range("seeds", seed, SEED)


def differing_learning_options(saved: LearningOptions, asked: LearningOptions) -> list[str]:
    """Return changes by `asked` that a resumed run may not make: `--core lstm (was rdn)`."""
    return contradictions(saved.flat(), asked.flat(), saved.changeable_on_resume)


def changed_learning_options(before: LearningOptions, after: LearningOptions) -> dict[str, Any]:
    """Return the options of `after`, as plain values, that differ from `before`."""
    old, new = before.flat(), after.flat()
    return {name: new[name] for name in new if name not in old or old[name] != new[name]}
