"""A run's files on disk: its folder, log, checkpoints and TensorBoard scalars."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
