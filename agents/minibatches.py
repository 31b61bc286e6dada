"""Which streams of a batch share a gradient step, when a batch is used more than once.

Streams are dealt out like cards: of each `count` neighbours in the batch every minibatch gets one,
in an order drawn anew for each pass. Learners that share a batch therefore have equally many
streams in each minibatch, and together make the gradient steps that one learner would.
"""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


def deals(
    streams: int, count: int, *, share: int, of: int, seed: int, batch: int
) -> Iterator[list[Int[Tensor, " N"]]]:
    """Yield, for each pass over a batch, one learner's streams in each of `count` minibatches.

    Args:
        streams: this learner's streams, a multiple of `count`.
        count: minibatches in a pass.
        share, of: this learner's place among all of them; each has as many streams.
        seed, batch: what the draws depend on: the run's seed, and which batch this is.
    """
    generator = np.random.default_rng((seed, batch))
    blocks = streams // count
    first = np.arange(blocks)[:, None] * count
    while True:
        dealt = generator.random((blocks * of, count)).argsort(1)
        own = dealt[share * blocks : (share + 1) * blocks]
        yield [torch.from_numpy(part) for part in (first + own).T.copy()]
