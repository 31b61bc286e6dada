"""Reports on runs: figures and tables, as one HTML page and as Markdown."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
