"""A lock on a folder, held by one process and let go by the kernel however that process ends."""

import contextlib
import errno
import os
import socket
import weakref
from pathlib import Path

from launch.failures import UserError

try:
    import fcntl
except ImportError:  # Windows: no lock there
    fcntl = None


class FolderLock:
    """Holds `folder`/.lock until `release`.

    Raises `BlockingIOError` where another holds it, `UserError` where it is a link: what that leads
    to would be overwritten.

    File systems without locks grant it. Forked children let go of it at birth: they would keep a
    run locked after their parent was killed.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = _open(folder / ".lock")
        try:
            self._acquire()
        except BaseException:
            self.release()
            raise
        this = weakref.ref(self)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: _release_if_alive(this))

    def release(self) -> None:
        """Lets go; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _acquire(self) -> None:
        if fcntl is not None:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise BlockingIOError(error.errno, self._holder()) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()} on {socket.gethostname()}".encode(), 0)

    def _holder(self) -> str:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return os.pread(self._descriptor, 200, 0).decode()
        return ""


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path} is a link: remove it") from error
        raise


def _release_if_alive(reference: "weakref.ref[FolderLock]") -> None:
    lock = reference()
    if lock is not None:
        lock.release()
