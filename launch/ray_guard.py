"""Ends what a run's own Ray has left, however the run ended.

    python launch/ray_guard.py FOLDER

Reads standard input until the run closes it, which `kill -9` does too; then kills every process
whose environment names the session's FOLDER, and removes that. Ray ends most of its processes with
its driver by itself; its agents stay for a minute, and a stopped process for as long as it is
stopped. Standard library only: it starts at once. Where there is no /proc, only the folder goes.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "FASTWEIGHTS_RAY_SESSION"  # set in the environment of everything that Ray starts for us
_PATIENCE = 10.0  # seconds in which a killed process should be gone


def main() -> None:
    """The command."""
    folder = sys.argv[1]
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to all processes of a job
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    deadline = time.monotonic() + _PATIENCE
    while (left := marked(folder)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def marked(folder: str) -> list[int]:
    """The processes that a session has running."""
    mark = f"{MARK}={folder}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    main()
