"""The bounded queue between threads that collect and the one that learns.

A thread takes a slot *before* it collects and the learner frees it *after* it has learned, so what
is being collected, waits, or is being learned from never exceeds the slots, and nothing is ever
dropped. Every wait in the asynchronous schedule is in here and ends when the queue is closed.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from fastweights.host.stages import Stages
from fastweights.training.schedules.experience import Experience

_POLL = 0.1  # seconds between two looks for a signal, which wakes no condition variable


class Closed(Exception):
    """The queue was closed: whoever collects stops."""


class RolloutQueue:
    """Safe for any number of threads that collect and one that learns."""

    def __init__(self, slots: int) -> None:
        assert slots >= 1
        self.slots = slots
        self._changed = threading.Condition()
        self._ready: deque[Experience] = deque()
        self._begun = self._released = 0
        self._closed = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        """Rollouts that are ready."""
        return len(self._ready)

    @property
    def free(self) -> int:
        """Slots that `reserve` gives without waiting."""
        return self._released + self.slots - self._begun

    def reserve(self) -> None:
        """Waits for a slot, first come, first served. Raises `Closed`."""
        with self._changed:
            place = self._begun
            self._begun += 1
            self._changed.wait_for(lambda: self._closed or place < self._released + self.slots)
        self.check()

    def put(self, experience: Experience) -> None:
        """Hands over what was collected in a slot of the caller's."""
        with self._changed:
            self._ready.append(experience)
            assert len(self._ready) <= self.slots
            self._changed.notify_all()

    def take(self, check: Callable[[], None]) -> Experience:
        """The oldest rollout that is ready; waits for one, calling `check` now and then.

        Raises the error that the queue was closed with, at once, also where rollouts are ready.
        """
        with self._changed:
            while not (self._ready or self._closed):
                self._changed.wait(_POLL)
                check()
            self.check_error()
            self.check()
            return self._ready.popleft()

    def release(self, count: int) -> None:
        """Frees the slots of the `count` oldest rollouts not yet freed."""
        with self._changed:
            self._released += count
            self._changed.notify_all()

    def close(self, error: BaseException | None = None) -> None:
        """Ends every wait; the first `error` is what `take` raises."""
        with self._changed:
            self._closed = True
            self._error = error if self._error is None else self._error
            self._changed.notify_all()

    def check_error(self) -> None:
        """Raises the error that the queue was closed with."""
        if self._error is not None:
            raise self._error

    def check(self) -> None:
        """Raises `Closed` once the queue is closed."""
        if self._closed:
            raise Closed


class QueuedSource:
    """What any `Source` does whose threads put rollouts into a queue.

    `slots`: rollouts that may be begun and not yet learned from. `stages` are the learner's: what
    they check also ends its wait for rollouts, and what goes wrong with a rollout ends its stages.
    """

    def __init__(self, slots: int, stages: Stages):
        self.queue, self.stages = RolloutQueue(slots), stages
        stages.checks.append(self.queue.check_error)

    @property
    def waiting(self) -> int:
        return len(self.queue)

    def rollouts(self) -> Iterator[Experience]:
        """See `Source.rollouts`: whichever is ready first."""
        while True:
            with self.stages("wait_for_rollouts"):
                experience = self.queue.take(self.stages.check)
            yield experience

    def release(self, count: int) -> None:
        """Lets `count` more rollouts be begun."""
        self.queue.release(count)

    def snapshot(self) -> None:
        """None: its actors are ahead of the learner, and wherever they are."""

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Plays new games."""
