"""Films of an agent at work: the game, its input and decisions, and its memory."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
