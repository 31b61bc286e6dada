"""Lets the C library keep the memory that tensors free, in pages of two megabytes.

Every update allocates the same large activations. glibc maps blocks of that size freshly from the
kernel and unmaps them when freed, so each update would pay for touching the same pages again; and
in pages of four kilobytes, the processor spends much of its time on looking up where they are.
"""

import ctypes
import mmap
import sys

_M_ARENA_MAX, _M_MMAP_MAX, _M_TRIM_THRESHOLD = -8, -4, -1  # <malloc.h>
_NEVER = -1
RESERVED = 8 * 2**30  # bytes of addresses; they cost nothing until something is stored there


def tune_allocator() -> bool:
    """Ask glibc to serve every block from one heap and never to trim it; False without glibc.

    The process then holds on to the most it has ever used.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is None:  # another C library
        return False
    one_heap = mallopt(_M_MMAP_MAX, 0) and mallopt(_M_ARENA_MAX, 1)
    if one_heap and mallopt(_M_TRIM_THRESHOLD, _NEVER):
        _prefer_large_pages(libc, RESERVED)
        return True
    return False


def _prefer_large_pages(libc: ctypes.CDLL, size: int) -> None:
    """Grows the heap by `size` bytes whose pages shall be large, and hands them back to it.

    A kernel that knows no such pages, or grants no such growth, leaves all as it was.
    """
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = libc.malloc(size)
    if block:
        start = -(-block // mmap.PAGESIZE) * mmap.PAGESIZE
        libc.madvise(start, (block + size - start) & -mmap.PAGESIZE, mmap.MADV_HUGEPAGE)
        libc.free(block)
