"""Learners that train one network together, each on its share of the batch."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Replicas(Protocol):
    """What a learner needs of the others; `training/replicas.py` has them in several processes."""

    count: int
    rank: int  # this learner's place among them, from 0: which part of the batch it has

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its sum over all learners, the same bits in each of them."""
        ...


class Alone:
    """One learner, which has the whole batch."""

    count, rank = 1, 0

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Leaves the tensors as they are."""
