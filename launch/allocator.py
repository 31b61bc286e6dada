"""Lets the C library keep the memory that tensors free, instead of handing it back each time.

Every update allocates the same large activations. glibc maps blocks of that size freshly from the
kernel and unmaps them when freed, so each update would pay for touching the same pages again.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # <malloc.h>
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Asks glibc to serve every block from its heap and never to trim it; False without glibc.

    The process then holds on to the most it has ever used.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _LARGEST))
