"""A run of a grid that has finished, for tests of what a table makes of results."""

from typing import Any

from fastweights.experiments.grid import Run


class Finished(Run):
    """A run called `name` whose result is `measured`."""

    finished, options, name = True, None, ""

    def __init__(self, measured: dict[str, Any], name: str = ""):
        self.measured, self.name = measured, name

    def result(self) -> dict[str, Any]:
        return self.measured

    def start(self):
        raise NotImplementedError

    go_on = differences = start
