"""SIGINT and SIGTERM as a request that a run comes to when it can."""

import signal
import time
from types import FrameType
from typing import Any, Self

_ONE_REQUEST = 2.0  # seconds: a batch system tells every process, and torchrun passes it on


class Interrupted(Exception):
    """Somebody asked the run to stop; `signal_number` says how."""

    def __init__(self, signal_number: int):
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


class StopRequests:
    """While entered, the first SIGINT or SIGTERM only leaves a note.

    A run can so come to a good place and save. A second signal, two seconds later or more, does
    what it would have done without us. For the main thread.
    """

    def __init__(self) -> None:
        self._noted = 0  # the signal that came; 0: none
        self._since: float | None = None  # when the first came, by the monotonic clock
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise `Interrupted`, once, where a signal has come."""
        if number := self._noted:
            self._noted = 0
            raise Interrupted(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._since is None:
            self._since, self._noted = time.monotonic(), number
        elif time.monotonic() - self._since >= _ONE_REQUEST:
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
