"""Requirements of CUDA tests, and whether a missing one skips or fails the test.

With FASTWEIGHTS_ALL_TESTS=1, as in `make test-gpu`, only a missing GPU skips a test. A package that
is not installed, or a GPU that the code refuses, is a failure then.
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
    """Skip the calling test or module if NVRTC cannot be imported."""
    for module in ("cuda.core", "cuda.bindings.nvrtc"):
        if EVERYTHING:
            importlib.import_module(module)
        else:
            pytest.importorskip(module, exc_type=ImportError)
