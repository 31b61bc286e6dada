"""Whole runs: shapes are checked by the tests of what they call; here that would take longest."""

import pytest


@pytest.fixture(autouse=True)
def _shapes_unchecked(shapes_unchecked):
    pass
