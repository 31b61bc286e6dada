"""Fixtures of the tests of experiments."""

from typing import Any

import pytest
from forks import ForkedJob

from fastweights.experiments import jobs, table
from fastweights.experiments.agents import t_maze_table


@pytest.fixture
def forked_runs(monkeypatch) -> None:
    """Fork the runs of a table from a process that has done their imports."""
    monkeypatch.setattr(jobs, "Popen", ForkedJob)


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
