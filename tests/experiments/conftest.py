"""Fixtures of the tests of experiments."""

from typing import Any

import pytest

from fastweights.experiments import pictures


@pytest.fixture
def drawn(monkeypatch) -> dict[str, Any]:
    """The figures that a command writes as PNG, by the file's name; they are written, too."""
    figures: dict[str, Any] = {}
    write = pictures.save_figure

    def noted(figure, path):
        figures[path.name] = figure
        write(figure, path)

    monkeypatch.setattr(pictures, "save_figure", noted)
    return figures
