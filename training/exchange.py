"""The data that several learners exchange when they sum their gradients.

Reports travel with the gradients: rows of a kind and three numbers. Every learner receives all of
them.
"""

from collections.abc import Sequence
from contextlib import suppress

from torch import Tensor

from fastweights.host import Interrupted
from fastweights.training.replicas import Replicas

GAME, LIFE, LAG, WEIGHTS, _STOP = range(5)  # kinds of report


class WeightsApart(RuntimeError):
    """The learners' weights are no longer identical."""


class Exchange:
    """The exchange between learners after each has computed a gradient.

    The learner uses it as its `Replicas`. Requests to stop are exchanged here, too.
    """

    def __init__(self, replicas: Replicas):
        self.count, self.rank, self._replicas = replicas.count, replicas.rank, replicas
        self._reports: Sequence[Sequence[float]] = ()  # this learner's, not sent yet
        self.heard: list[list[float]] = []  # of all learners, since the update began
        self._over = False

    def tell(self, reports: Sequence[Sequence[float]]) -> None:
        """Send `reports` with the next sum, the first one of an update."""
        self._reports, self.heard = reports, []

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors over all learners (see `Replicas.sum`), and collect their reports in `heard`.

        Raises `Interrupted` if a learner leaves, and `WeightsApart`; then nothing is summed.
        """
        reports, self._reports = self._reports, ()
        self._meet(reports)
        self._replicas.sum(tensors)

    def leave(self, signal_number: int) -> None:
        """Join the others' next `sum` to report the signal, unless all have seen one."""
        if not self._over:
            with suppress(Interrupted):
                self._meet([(_STOP, signal_number, 0, 0)])

    def _meet(self, reports: Sequence[Sequence[float]]) -> None:
        now = self._replicas.gather(reports, columns=4)
        self.heard += now
        if signals := _told_of(_STOP, now):
            self._over = True
            raise Interrupted(int(max(signals)))
        if len(set(checksums := _told_of(WEIGHTS, now))) > 1:
            raise WeightsApart(f"the learners' weights have diverged; checksums: {checksums}")


def _told_of(about: int, reports: Sequence[Sequence[float]]) -> list[float]:
    return [row[1] for row in reports if row[0] == about]
