"""What a well-smoothed n-gram model has on a text: the figure that a memory has to beat."""

from typing import NamedTuple

import numpy as np

from fastweights.tasks.language_model.corpus import Corpus
from fastweights.tasks.language_model.evaluation import measure
from fastweights.tasks.language_model.kneser_ney import KneserNey

ORDERS = (5,)
FEWEST = 20_000_000  # tokens to learn from; with more, it takes gigabytes


class NGram(NamedTuple):
    """A model's figures."""

    order: int
    unit: str
    valid: float  # bits a byte
    test: float
    test_perplexity: float

    def said(self) -> str:
        return (
            f"Kneser-Ney {self.order}-gram of {self.unit}: {self.valid:.3f} valid, {self.test:.3f} "
            f"test bits a byte (test perplexity {self.test_perplexity:.2f})."
        )


def smoothed_ngrams(text: Corpus, orders: tuple[int, ...] = ORDERS) -> list[NGram]:
    """Interpolated modified Kneser-Ney models, learned from the text's training split."""
    learned = np.asarray(text.splits["train"].ids)
    found = []
    for order in orders:
        model = KneserNey(learned, text.vocabulary.size, order)
        valid, test = (
            measure(float(model.losses(np.asarray(text.splits[name].ids)).sum()), text.splits[name])
            for name in ("valid", "test")
        )
        bits = valid.bits_per_byte, test.bits_per_byte
        found.append(NGram(order, text.vocabulary.kind, *bits, test.perplexity))
    return found
