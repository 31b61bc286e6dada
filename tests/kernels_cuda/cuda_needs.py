"""What some tests of CUDA kernels need, and whether they may do without.

With FASTWEIGHTS_ALL_TESTS=1, as `make test-gpu` has it, only a GPU may be missing: that something
was not installed, or that the code finds a GPU unfit, is a failure then.
"""

import importlib
import os

import pytest
import torch

from fastweights.kernels.cuda.launch import unavailable

EVERYTHING = bool(os.environ.get("FASTWEIGHTS_ALL_TESTS"))
_REASON = None if EVERYTHING and torch.cuda.is_available() else unavailable()
NEEDS_GPU = pytest.mark.skipif(_REASON is not None, reason=f"{_REASON}; `-m gpu` shows GPUs")


def need_nvrtc() -> None:
    """Skips what calls it, a test or a module, where NVRTC cannot be imported."""
    for module in ("cuda.core", "cuda.bindings.nvrtc"):
        if EVERYTHING:
            importlib.import_module(module)
        else:
            pytest.importorskip(module, exc_type=ImportError)
