"""Common settings of all tests: the values of `auto`, checked shapes, one thread, one seed.

Environment variables fix the values of `auto`, also for processes that tests start, so that results
do not depend on the machine. `make test ON=...` imitates another machine. Only `pytest -m gpu` sees
GPUs. Shapes are checked, except in tests of kernels and of whole runs.
"""

import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# Each operation's fastest available backend, whatever the shell has set.
os.environ["FASTWEIGHTS_BACKEND"] = "auto"
os.environ.setdefault("FASTWEIGHTS_CPUS", "2")  # threads of a run, Ray's actors, parallel jobs
os.environ.setdefault("FASTWEIGHTS_PRECISION", "float32")
# Set before torch is imported; pytest's workers share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium
import jaxtyping
import pytest
import torch

# The modules that declare shapes of tensors; checks make every call of a function slower.
OF_TASKS = ("language_model", "sequence_model", "sequences", "train")
SHAPED = ("kernels", "cores", "agents", *(f"tasks.{module}" for module in OF_TASKS))
jaxtyping.install_import_hook([f"fastweights.{module}" for module in SHAPED], "beartype.beartype")


TESTS = Path(__file__).parent
WHOLE_RUNS = {"host", "records", "training", "evaluation", "experiments", "launch"}
# Operations check shapes themselves; the tests of cores check those that their parts declare.
SHAPES_UNCHECKED = WHOLE_RUNS | {"kernels", "kernels_cuda"}


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before anything asks torch about GPUs


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep imported objects out of garbage collection, which saves time."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of whole runs, which take longest: short files even out the end."""
    items.sort(key=lambda item: _room(item) not in WHOLE_RUNS)


def _room(test: pytest.Item | pytest.FixtureRequest) -> str:
    return test.path.relative_to(TESTS).parts[0]


def _why_no_compiler() -> str | None:
    # After the import hook, so that its shapes are checked.
    from fastweights.kernels.machinery import cpu_build

    try:
        cpu_build.compiler()
    except cpu_build.BuildError as error:
        return str(error)
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that run C++ if there is no compiler: the project works without one."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    asked = item.get_closest_marker("compiler") or "shim" in item.fixturenames
    if (asked or parameters.get("backend") == "cpu") and (reason := _why_no_compiler()):
        pytest.skip(reason)


@pytest.fixture
def shapes_unchecked():
    """Disable shape checks where they would take most of the time and are made elsewhere."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def _shapes(request: pytest.FixtureRequest) -> None:
    if _room(request) in SHAPES_UNCHECKED:
        request.getfixturevalue("shapes_unchecked")


@pytest.fixture(autouse=True)
def _whole_runs(request: pytest.FixtureRequest):
    """Restore the backend after tests of whole runs."""
    if _room(request) not in WHOLE_RUNS:
        yield
        return
    from fastweights.kernels import requested_backend, use_backend

    before = requested_backend()
    yield
    if requested_backend() != before:
        use_backend(before)


@pytest.fixture(autouse=True)
def _known_settings():
    """Restore the global settings that runs in this process change."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.deterministic = False


@pytest.fixture
def register_game() -> Iterator[Callable[..., None]]:
    """`register_game(name, vector_entry_point=Game)`, as gymnasium's `register`, for one test."""
    names = []

    def register(name: str, **entry: object) -> None:
        gymnasium.register(name, **entry)
        names.append(name)

    yield register
    for name in names:
        del gymnasium.registry[name]


@pytest.fixture
def own_module(tmp_path, monkeypatch) -> Iterator[Callable[[str, str], None]]:
    """`own_module(name, source)` writes a user's module, whose cores are not imported yet."""
    from fastweights.cores import CORES

    modules = []
    monkeypatch.syspath_prepend(tmp_path)

    def forget() -> None:
        for name in modules:
            sys.modules.pop(name, None)
            for core in [one for one in CORES if one.startswith(f"{name}:")]:
                del CORES[core]
        importlib.invalidate_caches()

    def write(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)
        modules.append(name)
        forget()

    yield write
    forget()
