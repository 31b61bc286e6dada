"""Runs of agents and sequence tasks, and grids of runs with their tables and figures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
