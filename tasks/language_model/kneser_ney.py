"""The n-gram baseline: interpolated Kneser-Ney smoothing with three discounts an order.

    p(w | h) = max(c(h w) - D(c(h w)), 0) / c(h) + g(h) p(w | h without its first token)
    g(h) = sum of D(1), D(2), D(3+) over the n-grams that begin with h, / c(h)

In the highest order c counts occurrences. Below it, c counts the different tokens before an n-gram.
The lowest order is mixed with the uniform distribution.
Source: Chen & Goodman 1999, section 4.2 ("modified Kneser-Ney").
"""

import numpy as np
from jaxtyping import Float64, Int64


class KneserNey:
    """A model of `order`-grams over `types` types, learned from the tokens `ids`.

    N-grams are numbered order by order. The code of an n-gram is the number of its first n-1 tokens
    and its last token, so any vocabulary fits. Memory is a few arrays of the text's length an
    order.

    Raises:
        ValueError: too few tokens for the order; one line.
    """

    def __init__(self, ids: np.ndarray, types: int, order: int = 5):
        if order < 1 or len(ids) <= order:
            raise ValueError(f"an order of {order} cannot be learned from {len(ids):,} tokens")
        self.types, self.order = types, order
        at_end = _grams(ids, types, order)  # for each n, the n-gram that ends at each position
        self._codes = [codes for codes, _ in at_end]
        self._levels = [_Level(*self._counted(n, at_end), types=types) for n in range(1, order + 1)]

    def losses(self, ids: np.ndarray) -> Float64[np.ndarray, " predictions"]:
        """Return minus the natural logarithm of the probability of every token but the first."""
        ids = ids.astype(np.int64)
        probability = np.full(len(ids), 1 / self.types)
        found = np.zeros(len(ids), np.int64)  # number of the context of each position
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
        """Return each n-gram's context and count: occurrences, or different tokens before it."""
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

        A context without continuation takes the probability of the order below.
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
    """Return, for each n, the codes of all n-grams and the number of the one ending at a position.

    The first n - 1 positions end no n-gram and are left out.
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
    """Return the numbers of n-grams; -1 for n-grams never seen."""
    wanted = np.where(contexts >= 0, contexts * types + tokens, -1)
    places = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    return np.where(codes[places] == wanted, places, -1)


def _discounts(counts: np.ndarray) -> Float64[np.ndarray, "4"]:
    """Return D(0) = 0, D(1), D(2), D(3+) from the numbers of n-grams with each count.

    If these numbers cannot be used (a lowest order of bytes has few rare ones), return half of each
    count.
    """
    n1, n2, n3, n4 = (max(int((counts == k).sum()), 1) for k in (1, 2, 3, 4))
    y = n1 / (n1 + 2 * n2)
    found = np.array([0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
    most = np.arange(4)
    return np.where((found > 0) & (found < most), found, most / 2)
