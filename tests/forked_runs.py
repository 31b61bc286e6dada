"""The command in processes of their own, each forked from one that has imported what it imports."""

import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from forks import FORKS, speak_into

from fastweights.launch import atari


class ForkedRun:
    """`launch/atari.py ARGUMENTS`, what it says going to the file `output`."""

    def __init__(self, output: Path, *arguments: object):
        self._output = output
        self._process = FORKS.Process(target=_run, args=(output, [*map(str, arguments)]))
        self._process.start()
        self.pid = self._process.pid

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """While it lives; a minute at most, then it is killed."""
        deadline = time.monotonic() + 60
        while not condition():
            assert self._process.exitcode is None, self.said()
            if time.monotonic() > deadline:
                self._process.kill()
                raise TimeoutError(f"still waiting after a minute; it said {self.said()}")
            time.sleep(0.02)

    def end(self, number: int) -> int:
        """Its exit code after signal `number`."""
        os.kill(self._process.pid, number)
        return self.wait(60)

    def wait(self, seconds: float) -> int | None:
        """Its exit code once it ends by itself; None, and it is killed, where it does not."""
        self._process.join(seconds)
        code = self._process.exitcode
        self._process.kill()
        return code

    def said(self) -> str:
        return self._output.read_text()


def _run(output: Path, arguments: list[str]) -> None:
    gc.freeze()  # or it would copy all that was imported when it ends
    speak_into(output, output)
    sys.exit(atari.main(arguments))
