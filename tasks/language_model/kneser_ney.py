"""The n-gram baseline: interpolated Kneser-Ney smoothing with three discounts per order.

    p(w | h) = max(c(h w) - D(c(h w)), 0) / c(h) + g(h) p(w | h without its first token)
    g(h) = sum of D(1), D(2), D(3+) over the n-grams that begin with h, / c(h)

In the highest order, c counts occurrences. In lower orders, c counts the distinct tokens that
precede an n-gram. The lowest order is interpolated with the uniform distribution.
Source: Chen & Goodman 1999, section 4.2 ("modified Kneser-Ney").
"""

import numpy as np
from jaxtyping import Float64, Int64


class KneserNey:
    """An `order`-gram model over `types` types, estimated from the tokens `ids`.

    N-grams are numbered within each order. The code of an n-gram combines the number of its first
    n-1 tokens with its last token, so a vocabulary of any size fits. Each order needs a few arrays
    of the text's length.

    Raises:
        ValueError: there are too few tokens for the order; one line.
    """

    def __init__(self, ids: np.ndarray, types: int, order: int = 5):
        if order < 1 or len(ids) <= order:
            raise ValueError(f"order {order} cannot be estimated from {len(ids):,} tokens")
        self.types, self.order = types, order
        at_end = _grams(ids, types, order)  # for each n: the n-gram ending at each position
        self._codes = [codes for codes, _ in at_end]
        self._levels = [_Level(*self._counted(n, at_end), types=types) for n in range(1, order + 1)]

    def losses(self, ids: np.ndarray) -> Float64[np.ndarray, " predictions"]:
        """Return the negative log-probability, in nats, of every token but the first."""
        ids = ids.astype(np.int64)
        probability = np.full(len(ids), 1 / self.types)
        found = np.zeros(len(ids), np.int64)  # number of the context at each position
        contexts = [found]  # by length; -1: never seen
        for n in range(1, self.order):
            before = np.concatenate([[-1], contexts[-1][:-1]])
            gram = _look_up(self._codes[n - 1], before, np.concatenate([[0], ids[:-1]]), self.types)
            contexts.append(gram)
        for n, level in enumerate(self._levels):
            gram = _look_up(self._codes[n], contexts[n], ids, self.types)
            probability = level.interpolated(contexts[n], gram, probability)
        return -np.log(probability[1:])

    def _counted(
        self, n: int, at_end: list[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return each n-gram's context and count: occurrences, or distinct preceding tokens."""
        codes, grams = at_end[n - 1]
        if n == self.order:
            return codes // self.types, np.bincount(grams, minlength=len(codes))
        longer = at_end[n][1]  # one occurrence of each (n+1)-gram counts for its last n tokens
        _, where = np.unique(longer, return_index=True)
        return codes // self.types, np.bincount(grams[1:][where], minlength=len(codes))


class _Level:
    """The counts and discounts of one order."""

    def __init__(self, contexts: np.ndarray, counts: np.ndarray, types: int):
        self.counts = counts
        number = int(contexts.max()) + 1
        self.totals = np.bincount(contexts, weights=counts, minlength=number)
        self.discounts = _discounts(counts)
        taken = self.discounts[np.minimum(counts, 3)]
        self.taken = np.bincount(contexts, weights=taken, minlength=number)

    def interpolated(
        self, contexts: np.ndarray, grams: np.ndarray, lower: np.ndarray
    ) -> Float64[np.ndarray, " N"]:
        """Return the probability in this order, given the probability in the order below.

        A context that was never continued takes the probability of the order below.
        """
        seen = (contexts >= 0) & (contexts < len(self.totals))
        totals = np.where(seen, self.totals[np.where(seen, contexts, 0)], 0)
        seen &= totals > 0
        counts = np.where(grams >= 0, self.counts[np.maximum(grams, 0)], 0)
        own = np.maximum(counts - self.discounts[np.minimum(counts, 3)], 0)
        left = self.taken[np.where(seen, contexts, 0)]
        totals = np.where(seen, totals, 1)
        return np.where(seen, own / totals + left / totals * lower, lower)


def _grams(ids: np.ndarray, types: int, order: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for each n, the codes of all n-grams and the n-gram number at each position.

    An n-gram's position is that of its last token; the first n - 1 positions are omitted.
    """
    tokens, found = ids.astype(np.int64), []
    before = np.zeros(len(ids), np.int64)
    for n in range(1, order + 1):
        codes, grams = np.unique(before * types + tokens[n - 1 :], return_inverse=True)
        found.append((codes, grams))
        before = grams[:-1]
    return found


def _look_up(
    codes: Int64[np.ndarray, " G"],
    contexts: Int64[np.ndarray, " N"],
    tokens: Int64[np.ndarray, " N"],
    types: int,
) -> Int64[np.ndarray, " N"]:
    """Return the numbers of n-grams; -1 for unseen n-grams."""
    wanted = np.where(contexts >= 0, contexts * types + tokens, -1)
    places = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    return np.where(codes[places] == wanted, places, -1)


def _discounts(counts: np.ndarray) -> Float64[np.ndarray, "4"]:
    """Return D(0) = 0, D(1), D(2), D(3+) from the numbers of n-grams with each count.

    A discount outside (0, count) is replaced by half of the count. This can happen in the lowest
    order of bytes, where few are rare.
    """
    n1, n2, n3, n4 = (max(int((counts == k).sum()), 1) for k in (1, 2, 3, 4))
    y = n1 / (n1 + 2 * n2)
    found = np.array([0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
    most = np.arange(4)
    return np.where((found > 0) & (found < most), found, most / 2)
