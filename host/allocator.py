"""Settings of the C library's allocator: keep freed memory, in two-megabyte pages.

Every update allocates the same large activations. glibc maps blocks of that size from the kernel
and unmaps them when freed, so each update would touch new pages. With four-kilobyte pages, the
processor also spends much of its time on address translation.
"""

import ctypes
import mmap
import sys

_M_ARENA_MAX, _M_MMAP_MAX, _M_TRIM_THRESHOLD = -8, -4, -1  # <malloc.h>
_NEVER = -1
RESERVED = 8 * 2**30  # bytes of address space; no memory is used until it is written


def tune_allocator() -> bool:
    """Make glibc serve every block from one heap and never trim it; return False without glibc.

    The process then keeps its peak amount of memory.
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
    """Grow the heap by `size` bytes of large pages, and free them for later use.

    Has no effect on kernels without such pages, or if the growth is refused.
    """
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = libc.malloc(size)
    if block:
        start = -(-block // mmap.PAGESIZE) * mmap.PAGESIZE
        libc.madvise(start, (block + size - start) & -mmap.PAGESIZE, mmap.MADV_HUGEPAGE)
        libc.free(block)
