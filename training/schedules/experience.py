"""From rollouts, wherever they were collected, to batches of one size."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

from fastweights.agents import Collected, Rollout
from fastweights.host.errors import UserError
from fastweights.host.stages import Stages


class Experience(NamedTuple):
    """A rollout, and how many updates were behind the weights that acted in it."""

    collected: Collected
    version: int


class SourceFailed(UserError):
    """There will be no more rollouts; what was learned from the others is sound."""


class Source(Protocol):
    """Where a learner's rollouts come from; entered for as long as it shall give some."""

    threads: Sequence[Stages]  # of every thread that takes part, the learner's first
    waiting: int  # rollouts that are ready

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def rollouts(self) -> Iterator[Experience]:
        """One after the other, without end. Raises what went wrong in collecting them."""
        ...

    def publish(self, version: int) -> None:
        """The learner's network now has `version` updates behind it."""
        ...

    def release(self, count: int) -> None:
        """So many more rollouts have been learned from completely."""
        ...

    def columns(self) -> dict[str, float]:
        """What else the log's next row shall say."""
        ...

    def snapshot(self) -> dict[str, Any] | None:
        """What `restore` needs for the next rollout to be this run's, or None: new games then."""
        ...

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Goes on where `snapshot` was taken, if this source can; before its first rollout."""
        ...


class Batch(NamedTuple):
    """What one update learns from."""

    rollout: Rollout
    version: int  # the oldest that acted
    used_up: int  # rollouts whose last column this is


class _Part(NamedTuple):
    rollout: Rollout
    version: int
    is_last: bool


def batches(rollouts: Iterable[Experience], batch_size: int) -> Iterator[Batch]:
    """Every column once and in order, `batch_size` at a time, joined and cut where need be.

    A batch's rollouts stay referenced until the next batch is asked for: a GPU may read them still.
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
