"""What every test begins with: what `auto` comes to, checked shapes, one thread, one seed.

The environment variables below decide what `auto` comes to, here and in every process that a test
starts, so that tests do the same on every machine; `make test ON=...` asks for another machine's.
GPUs are shown to `pytest -m gpu` alone. Shapes are checked except in whole runs.
"""

import gc
import os
from pathlib import Path

os.environ["FASTWEIGHTS_BACKEND"] = "auto"  # no shell's: each operation's fastest that is here
os.environ.setdefault("FASTWEIGHTS_CPUS", "2")  # for a run's threads, Ray's actors, parallel jobs
os.environ.setdefault("FASTWEIGHTS_PRECISION", "float32")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: workers share the cores

import jaxtyping
import pytest
import torch

jaxtyping.install_import_hook(
    [f"fastweights.{room}" for room in ("kernels", "cores", "agents", "tasks")], "beartype.beartype"
)


TESTS = Path(__file__).parent
WHOLE_RUNS = {"host", "records", "training", "evaluation", "experiments", "launch"}


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


def _why_no_compiler() -> str | None:
    from fastweights.kernels.machinery import cpu_build  # once its shapes are checked

    try:
        cpu_build.compiler()
    except cpu_build.BuildError as error:
        return str(error)
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What runs C++ is skipped only where there is no compiler: the project works without one."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    asked = item.get_closest_marker("compiler") or "shim" in item.fixturenames
    if (asked or parameters.get("backend") == "cpu") and (reason := _why_no_compiler()):
        pytest.skip(reason)


@pytest.fixture
def shapes_unchecked():
    """Where the same calls are checked elsewhere, and checking would take longest."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def _whole_runs(request: pytest.FixtureRequest):
    """Whole runs leave shapes to the tests of what they call, and no `--kernels` behind."""
    if request.path.relative_to(TESTS).parts[0] not in WHOLE_RUNS:
        yield
        return
    from fastweights.kernels import requested_backend, use_backend

    request.getfixturevalue("shapes_unchecked")
    before = requested_backend()
    yield
    if requested_backend() != before:
        use_backend(before)


@pytest.fixture(autouse=True)
def _known_settings():
    """Runs in this process set all of these, and do not set them back."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.deterministic = False
