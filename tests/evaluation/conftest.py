"""Runs that the tests of reports share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """The folder of three short runs on Pong, for the tests of reports."""
    from tests.evaluation.report_pages import three_runs  # not for those who make no report

    return three_runs(tmp_path_factory.mktemp("runs"))
