"""SIGINT and SIGTERM as a request that a run comes to when it can."""

import signal
import time
from types import FrameType
from typing import Any, Self

_ONE_REQUEST = 2.0  # seconds: torchrun passes on a Ctrl-C that the terminal has sent already


class Interrupted(Exception):
    """Somebody asked the run to stop; `signal_number` says how."""

    def __init__(self, signal_number: int):
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


class StopRequests:
    """While entered, the first SIGINT or SIGTERM only leaves a note.

    A run can so finish its update and save. A second signal, two seconds later or more, does what
    it would have done without us. Processes that must stop at the same update, `together`,
    tell each other what they `noted` and `agree`. For the main thread.
    """

    def __init__(self, together: bool = False) -> None:
        self.together = together
        self.noted = 0  # the signal that came; 0: none
        self._agreed = 0
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
        """Raises `Interrupted`, once, where a signal has come and nobody else has to know of it."""
        if not self.together:
            self._raise(self.noted)

    def agree(self, number: int) -> None:
        """All processes know of the signal `number`, of their largest; 0: of none."""
        self._agreed = number

    def check_together(self) -> None:
        """Raises `Interrupted` in all processes, once, where they agreed on a signal."""
        self._raise(self._agreed if self.together else self.noted)

    def _raise(self, number: int) -> None:
        if number:
            self.noted = self._agreed = 0
            raise Interrupted(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._since is None:
            self._since, self.noted = time.monotonic(), number
        elif time.monotonic() - self._since >= _ONE_REQUEST:
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
