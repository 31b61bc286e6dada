"""A lock on a folder, held by one process; the operating system releases it at process end."""

import errno
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from fastweights.host.errors import UserError

_POLL = 0.2  # seconds
# Errors of file systems without locks.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


class FolderLock:
    """A lock on `folder`/.lock until `release`; the file names the process that holds it.

    Raises `BlockingIOError` if another process holds it, and `UserError` if the file is a link,
    because the link's target would be overwritten.

    On file systems without locks it is always granted. A forked child does not hold it (filelock
    ensures this), so that the run is not locked after its parent was killed.
    """

    def __init__(self, folder: Path) -> None:
        from filelock import FileLock, Timeout  # the import takes ten milliseconds

        path = folder / ".lock"
        # filelock's fallback, a plain file, would outlive a killed process.
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
        """Release the lock; a second call does nothing."""
        self._lock.release()

    def remove(self) -> None:
        """Remove the lock file, and release the lock."""
        with suppress(OSError):
            Path(self._lock.lock_file).unlink()
        self.release()


def wait_for_lock(folder: Path) -> FolderLock:
    """Wait until `folder` is unlocked, and return a lock on it."""
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
