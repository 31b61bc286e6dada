"""SIGINT, SIGTERM and SIGHUP as requests to stop, which a run obeys when it can."""

import signal
import time
from types import FrameType
from typing import Any, Self

_ONE_REQUEST = 2.0  # seconds: batch systems and torchrun may both signal each process


class Interrupted(Exception):
    """A request to stop the run; `signal_number` is its signal."""

    def __init__(self, signal_number: int):
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


def stop_signals() -> tuple[int, ...]:
    """Return the signals that ask for a stop.

    SIGHUP is sent when a terminal closes; if it is ignored (`nohup`), it stays ignored.
    """
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return signal.SIGINT, signal.SIGTERM, *(() if ignored else (signal.SIGHUP,))


class StopRequests:
    """A context in which the first SIGINT, SIGTERM or SIGHUP only sets a flag.

    This lets a run finish its update and save. A second signal, at least two seconds later, has its
    default effect. Only for the main thread.
    """

    def __init__(self) -> None:
        self._noted = 0  # signal received; 0: none
        self._since: float | None = None  # time of the first signal, by the monotonic clock
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in stop_signals():
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def requested(self) -> bool:
        """Whether a signal has arrived that `check` has not raised yet."""
        return self._noted != 0

    def check(self) -> None:
        """Raise `Interrupted`, once, if a signal has arrived."""
        if number := self._noted:
            self._noted = 0
            raise Interrupted(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._since is None:
            self._since, self._noted = time.monotonic(), number
        elif time.monotonic() - self._since >= _ONE_REQUEST:
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
