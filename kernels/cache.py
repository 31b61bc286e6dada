"""Where compiled kernels are kept, of CPUs and GPUs alike."""

import os
from pathlib import Path

VARIABLE = "FASTWEIGHTS_CACHE"


def cache_folder() -> Path:
    """FASTWEIGHTS_CACHE, else `fastweights` in the user's cache folder."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastweights"
