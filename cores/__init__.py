"""Memories for agents: one interface, one file each; `CORES` maps names to kinds.

To add a core, write one file here and one line in `registry.py` (and an operation in `kernels/` if
its recurrence is new). `options` turns the cores' options into command-line flags.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
