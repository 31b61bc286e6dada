"""Whole runs: shapes are checked by the tests of what they call; here that would take longest."""

import jaxtyping
import pytest


@pytest.fixture(autouse=True)
def _shapes_unchecked():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
