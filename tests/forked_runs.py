"""Runs of the command in separate processes, forked from one that has done all imports."""

import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from forks import FORKS, speak_into

from fastweights.launch import atari


class ForkedRun:
    """A process that runs `launch/atari.py ARGUMENTS` and writes its output to a file."""

    def __init__(self, output: Path, *arguments: object):
        self._output = output
        self._process = FORKS.Process(target=_run, args=(output, [*map(str, arguments)]))
        self._process.start()
        self.pid = self._process.pid

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a minute at most, then kill the process and fail; fail if it ends before."""
        deadline = time.monotonic() + 60
        while not condition():
            assert self._process.exitcode is None, self.said()
            if time.monotonic() > deadline:
                self._process.kill()
                raise TimeoutError(f"still waiting after a minute; output: {self.said()}")
            time.sleep(0.02)

    def end(self, number: int) -> int:
        """Send signal `number` and return the exit code."""
        os.kill(self._process.pid, number)
        return self.wait(60)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code; kill the process and return None if it takes longer."""
        self._process.join(seconds)
        code = self._process.exitcode
        self._process.kill()
        return code

    def said(self) -> str:
        return self._output.read_text()


def _run(output: Path, arguments: list[str]) -> None:
    gc.freeze()  # otherwise its exit would copy all imported objects
    speak_into(output, output)
    sys.exit(atari.main(arguments))
