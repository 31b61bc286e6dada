"""Memories for agents: one interface, one file each, and `CORES` from name to kind.

A new core is one file here and one line in `registry.py` (and an operation in `kernels/` if its
recurrence is new). `options` has the cores' options as flags of commands.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
