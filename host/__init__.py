"""Operating-system helpers: processes, hardware, terminal, files.

Imports no other folder of the package.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
