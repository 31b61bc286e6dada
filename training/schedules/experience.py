"""Rollouts of any origin, and their division into batches of equal size."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

from fastweights.agents import Collected, Rollout
from fastweights.host import Stages, UserError


class Experience(NamedTuple):
    """A rollout, and the version of the weights that acted in it (a number of updates)."""

    collected: Collected
    version: int


class SourceFailed(UserError):
    """There will be no more rollouts; what has been learned so far is valid."""


class Source(Protocol):
    """The source of a learner's rollouts; a context manager that closes it at the end."""

    threads: Sequence[Stages]  # stages of every thread, the learner's first
    waiting: int  # number of rollouts that are ready

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def close(self) -> None:
        """End its threads and close its environments; allowed before it runs, and repeatedly."""
        ...

    def rollouts(self) -> Iterator[Experience]:
        """Yield rollouts without end. Raises errors of the collection."""
        ...

    def publish(self, version: int) -> None:
        """Publish the learner's network, which has had `version` updates."""
        ...

    def release(self, count: int) -> None:
        """Free the slots of `count` more rollouts, which have been used completely."""
        ...

    def columns(self) -> dict[str, float]:
        """Return additional columns for the next row of the log."""
        ...

    def snapshot(self) -> dict[str, Any] | None:
        """Return what `restore` needs to continue the games; None if new games must begin."""
        ...

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue where `snapshot` was taken, if possible; call it before the first rollout."""
        ...


class Batch(NamedTuple):
    """The rollouts of one update."""

    rollout: Rollout
    version: int  # of the oldest weights that acted
    used_up: int  # number of rollouts whose last column is in this batch


class _Part(NamedTuple):
    rollout: Rollout
    version: int
    is_last: bool


def batches(rollouts: Iterable[Experience], batch_size: int) -> Iterator[Batch]:
    """Yield every column once and in order, `batch_size` at a time; join and split rollouts.

    A batch's rollouts stay referenced until the next batch is requested: a GPU may still read them.
    """
    parts: list[_Part] = []
    missing = batch_size
    for collected, version in rollouts:
        rollout, start = collected.rollout, 0
        columns = rollout.action.shape[1]
        while start < columns:
            stop = min(columns, start + missing)
            parts.append(_Part(rollout.columns(start, stop), version, stop == columns))
            missing, start = missing - (stop - start), stop
            if missing == 0:
                yield _join(parts)
                parts, missing = [], batch_size


def _join(parts: Sequence[_Part]) -> Batch:
    rollout = Rollout.join([part.rollout for part in parts])
    used_up = sum(part.is_last for part in parts)
    return Batch(rollout, min(part.version for part in parts), used_up)
