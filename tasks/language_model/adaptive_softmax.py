"""Adaptive softmax: an output layer for large vocabularies that shares the embedding's weights.

    p(w) = head(w)                  for the most frequent words, w < cutoffs[0]
    p(w) = head(cluster) tail(w)    for the rest; a tail is a softmax over its cluster's words

Words are numbered by descending frequency. Without cutoffs, this is a plain softmax. PyTorch's
`nn.AdaptiveLogSoftmaxWithLoss` has a projection before each tail and no biases in the tails. The
published models have biases and no projections, so that all weights can be tied to the embedding.
A test compares both implementations where they are equivalent.
Source: Grave et al. 2017; cutoffs 20,000, 40,000 and 200,000: Transformer-XL (Dai et al. 2019).
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class AdaptiveSoftmax(nn.Module):
    """Log-probabilities of `types` words given hidden vectors of size `width`.

    `weight` [types, width] is also the embedding. Cutoffs beyond the vocabulary are ignored.

    Raises:
        ValueError: the cutoffs are not positive and ascending.
    """

    def __init__(self, types: int, width: int, cutoffs: Sequence[int] = ()):
        super().__init__()
        if list(cutoffs) != sorted(set(cutoffs)) or any(cutoff < 1 for cutoff in cutoffs):
            raise ValueError(f"--cutoffs must be above 0 and ascending, not {list(cutoffs)}")
        reached = [cutoff for cutoff in cutoffs if cutoff < types]
        self.types, self.head = types, reached[0] if reached else types
        self.tails = list(zip(reached, [*reached[1:], types], strict=True)) if reached else []
        self.weight = nn.Parameter(torch.empty(types, width))
        self.bias = nn.Parameter(torch.zeros(types))
        if self.tails:
            self.cluster_weight = nn.Parameter(torch.empty(len(self.tails), width))
            self.cluster_bias = nn.Parameter(torch.zeros(len(self.tails)))

    def forward(
        self, hidden: Float[Tensor, "N D"], targets: Int[Tensor, " N"]
    ) -> Float[Tensor, " N"]:
        """Return the negative log-probabilities of the targets, in nats, in at least float32."""
        in_head = targets
        for cluster, (first, _) in enumerate(self.tails):
            in_head = torch.where(targets >= first, self.head + cluster, in_head)
        loss = F.cross_entropy(_exact(self._head(hidden)), in_head, reduction="none")
        for first, end in self.tails:
            rows = ((targets >= first) & (targets < end)).nonzero()[:, 0]
            logits = _exact(self._tail(hidden[rows], first, end))
            of_tail = F.cross_entropy(logits, targets[rows] - first, reduction="none")
            loss = loss.index_add(0, rows, of_tail)
        return loss

    def log_probabilities(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N types"]:
        """Return the log-probabilities of all words."""
        head = _exact(self._head(hidden)).log_softmax(-1)
        return torch.cat(list(self._parts(hidden, head)), -1)

    def _parts(self, hidden: Tensor, head: Tensor) -> Iterator[Tensor]:
        yield head[:, : self.head]
        for cluster, (first, end) in enumerate(self.tails):
            inside = _exact(self._tail(hidden, first, end)).log_softmax(-1)
            yield head[:, self.head + cluster, None] + inside

    def _head(self, hidden: Tensor) -> Tensor:
        weight, bias = self.weight[: self.head], self.bias[: self.head]
        if self.tails:
            weight = torch.cat([weight, self.cluster_weight])
            bias = torch.cat([bias, self.cluster_bias])
        return F.linear(hidden, weight, bias)

    def _tail(self, hidden: Tensor, first: int, end: int) -> Tensor:
        return F.linear(hidden, self.weight[first:end], self.bias[first:end])


def _exact(logits: Tensor) -> Tensor:
    """Return the logits in float32 if autocast lowered their precision."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
