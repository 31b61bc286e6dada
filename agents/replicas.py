"""The interface between learners that train one network, each on its share of the batch."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Replicas(Protocol):
    """The other learners, as seen by a learner; `training/replicas.py` connects processes."""

    count: int
    rank: int  # this learner's index, and its part's index in the batch, from 0

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all learners, bit-identical in each of them."""
        ...


class Alone:
    """A single learner, which has the whole batch."""

    count, rank = 1, 0

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Leave the tensors as they are."""
