"""Shapes are checked but in whole runs; torch and the emulator keep to one thread each.

What `auto` chooses must be the same everywhere: GPUs are shown to `pytest -m gpu` alone.
"""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: workers share the cores

import jaxtyping
import pytest
import torch

jaxtyping.install_import_hook(["kernels", "cores", "agents", "tasks"], "beartype.beartype")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before anybody asks torch


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is imported stays: it is not searched for garbage, now or later."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


@pytest.fixture
def shapes_unchecked():
    """Where the same calls are checked elsewhere, and checking would take longest."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def _known_settings():
    """Runs in this process set all of these, and do not set them back."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.deterministic = False
