"""A run of a grid that has finished, for tests of what a table makes of results."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fastweights.experiments.grid import Run


class Finished(Run):
    """A run called `name` whose result is `measured`."""

    finished, name = True, ""

    def __init__(self, measured: dict[str, Any], name: str = ""):
        self.measured, self.name = measured, name
        self.options = SimpleNamespace(savedir=Path("runs"), xpid=name or f"run-{id(self)}")

    def result(self) -> dict[str, Any]:
        return self.measured

    def start(self):
        raise NotImplementedError

    go_on = differences = start
