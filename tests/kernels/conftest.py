"""What runs C++ is skipped only where there is no compiler: the project works without one."""

import pytest

from kernels import cpu_build


def _why_no_compiler() -> str | None:
    try:
        cpu_build.compiler()
    except cpu_build.BuildError as error:
        return str(error)
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    runs_cpp = parameters.get("backend") == "cpu" or item.get_closest_marker("compiler")
    if runs_cpp and (reason := _why_no_compiler()):
        pytest.skip(reason)
