"""Fixtures of the tests of experiments."""

from typing import Any

import pytest

from fastweights.experiments import t_maze_table, table


@pytest.fixture
def drawn(monkeypatch) -> dict[str, Any]:
    """The figures that a command writes as PNG, by the file's name; they are written, too."""
    figures: dict[str, Any] = {}
    write = table.save_figure

    def noted(figure, path):
        figures[path.name] = figure
        write(figure, path)

    for module in (table, t_maze_table):
        monkeypatch.setattr(module, "save_figure", noted)
    return figures
