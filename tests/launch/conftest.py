"""Whole runs: shapes are checked by the tests of what they call; here that would take longest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastweights.kernels import requested_backend, use_backend


@pytest.fixture(autouse=True)
def _shapes_unchecked(shapes_unchecked):
    pass


@pytest.fixture(autouse=True)
def _a_run_leaves_no_backend_behind() -> Iterator[None]:
    """`--kernels` is for a whole process, and this one has more tests to do."""
    before = requested_backend()
    yield
    if requested_backend() != before:
        use_backend(before)


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """The folder of three short runs on Pong, for the tests of reports."""
    from tests.evaluation.report_pages import three_runs  # not for those who make no report

    return three_runs(tmp_path_factory.mktemp("runs"))
