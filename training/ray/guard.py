"""Ends what a run's own Ray has left, however the run ended.

    python training/ray/guard.py FOLDER

Reads standard input until the run closes it, which `kill -9` does too; then kills every other
process that has a file of the session's FOLDER open, as all that Ray starts have for their output,
and removes the folder. Ray ends most of its processes with its driver by itself; its agents stay
for a minute, and a stopped process for as long as it is stopped. Standard library only: it starts
at once. Where there is no /proc, only the folder goes.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_PATIENCE = 10.0  # seconds in which a killed process should be gone


def main() -> None:
    """The command."""
    folder, run = sys.argv[1], os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to all processes of a job
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    deadline = time.monotonic() + _PATIENCE
    while (left := set(users(folder)) - {run}) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def guard(folder: str) -> subprocess.Popen[bytes]:
    """Starts this file for the calling process; closing its `stdin` ends all but the caller."""
    return subprocess.Popen(
        [sys.executable, "-S", __file__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def users(folder: str) -> list[int]:
    """The processes with a file below `folder` open."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(path.readlink()).startswith(f"{folder}/"):
                found.add(int(path.parts[2]))
    return sorted(found)


if __name__ == "__main__":
    main()
