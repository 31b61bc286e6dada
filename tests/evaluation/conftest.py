"""Runs for the tests of reports."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """Return the folder of three short runs on Pong."""
    # Imported here because most tests of this folder make no report.
    from tests.evaluation.report_pages import three_runs

    return three_runs(tmp_path_factory.mktemp("runs"))
