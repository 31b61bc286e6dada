"""The loss of a smoothed n-gram model on a text, as a baseline for memories."""

from typing import NamedTuple

import numpy as np

from fastweights.tasks.language_model import Corpus, KneserNey, mean_loss

ORDERS = {"words": (5,), "bytes": (5, 12)}  # twelve bytes are about two words
MOST_GRAMS = 100_000_000  # maximum of order x training tokens; more take over two gigabytes


class NGram(NamedTuple):
    """The losses of an n-gram model."""

    order: int
    unit: str
    valid: float | None  # bits per byte; None if words became `<unk>`
    test: float | None
    test_perplexity: float

    def said(self) -> str:
        """Return a line about the model."""
        name = f"Kneser-Ney {self.order}-gram of {self.unit}"
        if self.valid is None or self.test is None:
            return (
                f"{name}: test perplexity {self.test_perplexity:.2f}; no bits per byte, because "
                "words became <unk>."
            )
        return (
            f"{name}: {self.valid:.3f} valid, {self.test:.3f} "
            f"test bits per byte (test perplexity {self.test_perplexity:.2f})."
        )


def smoothed_ngrams(text: Corpus) -> list[NGram]:
    """Return interpolated modified Kneser-Ney models, estimated on the training split.

    Orders for which the text is too long are left out.
    """
    learned = np.asarray(text.splits["train"].ids)
    found = []
    for order in ORDERS[text.vocabulary.kind]:
        if order * len(learned) > MOST_GRAMS:
            continue
        model = KneserNey(learned, text.vocabulary.size, order)
        valid, test = (
            mean_loss(
                float(model.losses(np.asarray(text.splits[name].ids)).sum()), text.splits[name]
            )
            for name in ("valid", "test")
        )
        bits = valid.bits_per_byte, test.bits_per_byte
        found.append(NGram(order, text.vocabulary.kind, *bits, test.perplexity))
    return found
