"""Clean-up after a run's own Ray, however the run ended.

    python training/ray/guard.py FOLDER

Reads standard input until the run closes it; `kill -9` closes it, too. Then it kills every other
process with an open file in the session's FOLDER, where all of Ray's processes write their output,
and removes the folder. Ray ends most of its processes with its driver, but its agents stay for a
minute, and a stopped process stays as long as it is stopped. This file uses only the standard
library, so that it starts quickly. On systems without /proc, only the folder is removed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_PATIENCE = 10.0  # seconds for a killed process to end


def main() -> None:
    """Run the command."""
    folder, run = sys.argv[1], os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # sent to a job's processes
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
    """Start this file for the calling process; closing its `stdin` ends all but the caller."""
    return subprocess.Popen(
        [sys.executable, "-S", __file__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def users(folder: str) -> list[int]:
    """Return the processes that have a file below `folder` open."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(path.readlink()).startswith(f"{folder}/"):
                found.add(int(path.parts[2]))
    return sorted(found)


if __name__ == "__main__":
    main()
