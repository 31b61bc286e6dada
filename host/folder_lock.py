"""A lock on a folder, held by one process and let go by the system however that process ends."""

import errno
import os
import socket
import time
from pathlib import Path

from fastweights.host.errors import UserError

_POLL = 0.2  # seconds
# What file systems without locks answer.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


class FolderLock:
    """Holds `folder`/.lock until `release`; the file names who holds it.

    Raises `BlockingIOError` where another holds it, `UserError` where it is a link: what that leads
    to would be overwritten.

    File systems without locks grant it. A forked child does not hold it (filelock sees to that): it
    would keep a run locked after its parent was killed.
    """

    def __init__(self, folder: Path) -> None:
        from filelock import FileLock, Timeout  # ten milliseconds, so only where a folder is locked

        path = folder / ".lock"
        # Files of filelock's own making in place of locks would outlive a killed process.
        self._lock = FileLock(
            path,
            blocking=False,
            thread_local=False,
            fallback_to_soft=False,
            preserve_lock_file=True,
            on_acquired=_write_holder,
        )
        try:
            self._lock.acquire()
        except Timeout as error:
            raise BlockingIOError(errno.EWOULDBLOCK, _holder(path)) from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UserError(f"{path} is a link: remove it") from error
            if error.errno not in _NO_LOCKS:
                raise

    def release(self) -> None:
        """Let go; a second call does nothing."""
        self._lock.release()


def wait_for(folder: Path) -> FolderLock:
    """A lock on `folder`, once whoever holds it lets go."""
    while True:
        try:
            return FolderLock(folder)
        except BlockingIOError:
            time.sleep(_POLL)


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())


def _holder(path: Path) -> str:
    try:
        return path.read_bytes()[:200].decode()
    except (OSError, UnicodeDecodeError):
        return ""
