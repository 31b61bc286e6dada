"""SIGINT and SIGTERM as a request that a run comes to when it can."""

import signal
from types import FrameType
from typing import Any, Self


class Interrupted(Exception):
    """Somebody asked the run to stop; `signal_number` says how."""

    def __init__(self, signal_number: int):
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


class StopRequests:
    """While entered, the first SIGINT or SIGTERM only leaves a note for `check`.

    A run can so finish its update and save. A second signal does what it would have done without
    us. For the main thread.
    """

    def __init__(self) -> None:
        self._noted: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises `Interrupted`, once, where a signal has come."""
        if self._noted is not None:
            number, self._noted = self._noted, None
            raise Interrupted(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number
        signal.signal(number, self._before[number])
