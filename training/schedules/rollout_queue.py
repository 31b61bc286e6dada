"""The bounded queue between collecting threads and the learning thread.

A thread takes a slot *before* it collects, and the learner frees it *after* it has learned. So the
rollouts being collected, queued and learned from never exceed the slots, and none is ever dropped.
All waiting in the asynchronous schedule happens in this file and ends when the queue is closed.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from fastweights.host import Stages
from fastweights.training.schedules.experience import Experience

_POLL = 0.1  # seconds between checks for a signal, which does not wake a condition variable


class Closed(Exception):
    """The queue was closed: collecting threads must stop."""


class RolloutQueue:
    """A queue for any number of collecting threads and one learning thread."""

    def __init__(self, slots: int) -> None:
        assert slots >= 1
        self.slots = slots
        self._changed = threading.Condition()
        self._ready: deque[Experience] = deque()
        self._begun = self._released = 0
        self._closed = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        """Return the number of queued rollouts."""
        return len(self._ready)

    @property
    def free(self) -> int:
        """The number of slots that `reserve` can grant without waiting."""
        return self._released + self.slots - self._begun

    def reserve(self) -> None:
        """Wait for a slot, first come, first served. Raises `Closed`."""
        with self._changed:
            place = self._begun
            self._begun += 1
            self._changed.wait_for(lambda: self._closed or place < self._released + self.slots)
        self.check()

    def put(self, experience: Experience) -> None:
        """Add a rollout that was collected in one of the caller's slots."""
        with self._changed:
            self._ready.append(experience)
            assert len(self._ready) <= self.slots
            self._changed.notify_all()

    def take(self, check: Callable[[], None]) -> Experience:
        """Return the oldest queued rollout; wait for one, calling `check` at intervals.

        If the queue was closed with an error, raise it at once, even if rollouts are queued.
        """
        with self._changed:
            while not (self._ready or self._closed):
                self._changed.wait(_POLL)
                check()
            self.check_error()
            self.check()
            return self._ready.popleft()

    def release(self, count: int) -> None:
        """Free the slots of the `count` oldest rollouts that still hold one."""
        with self._changed:
            self._released += count
            self._changed.notify_all()

    def close(self, error: BaseException | None = None) -> None:
        """End every wait; `take` raises the first `error`."""
        with self._changed:
            self._closed = True
            self._error = error if self._error is None else self._error
            self._changed.notify_all()

    def check_error(self) -> None:
        """Raise the error that the queue was closed with."""
        if self._error is not None:
            raise self._error

    def check(self) -> None:
        """Raise `Closed` once the queue is closed."""
        if self._closed:
            raise Closed


class QueuedSource:
    """Base of a `Source` whose threads put rollouts into a queue.

    `slots`: maximum number of rollouts begun but not yet learned from. `stages` are the learner's:
    their checks also end its wait for rollouts, and an error in a rollout ends its stages.
    """

    def __init__(self, slots: int, stages: Stages):
        self.queue, self.stages = RolloutQueue(slots), stages
        stages.checks.append(self.queue.check_error)

    @property
    def waiting(self) -> int:
        """The number of queued rollouts."""
        return len(self.queue)

    def rollouts(self) -> Iterator[Experience]:
        """Yield rollouts in the order in which they become ready; see `Source.rollouts`."""
        while True:
            with self.stages("wait_for_rollouts"):
                experience = self.queue.take(self.stages.check)
            yield experience

    def release(self, count: int) -> None:
        """Allow `count` more rollouts to begin."""
        self.queue.release(count)

    def snapshot(self) -> None:
        """Return None: actors are ahead of the learner, at unknown steps."""

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Do nothing: new games begin."""
