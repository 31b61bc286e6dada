"""The distribution of a batch's streams over minibatches when a batch is used more than once.

Of every `count` neighbouring streams in the batch, each minibatch gets one, in an order drawn anew
for each pass. So learners that share a batch have equally many streams in each minibatch, and
together make the same gradient steps as a single learner.
"""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


def deals(
    streams: int, count: int, *, share: int, of: int, seed: int, steps: int
) -> Iterator[list[Int[Tensor, " N"]]]:
    """Yield, for each pass over a batch, one learner's streams in each of `count` minibatches.

    Args:
        streams: this learner's streams, a multiple of `count`.
        count: minibatches in a pass.
        share: this learner's index; all learners have equally many streams.
        of: number of learners.
        seed: the run's seed.
        steps: the run's agent steps before the batch; the draws depend on them and on the seed.
    """
    generator = np.random.default_rng((seed, steps))
    blocks = streams // count
    first = np.arange(blocks)[:, None] * count
    while True:
        dealt = generator.random((blocks * of, count)).argsort(1)
        own = dealt[share * blocks : (share + 1) * blocks]
        yield [torch.from_numpy(part) for part in (first + own).T.copy()]
