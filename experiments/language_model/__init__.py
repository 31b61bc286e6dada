"""Language-model runs: options, training, evaluation, text, export, and the paper's tables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
