"""A model's loss on a text: with sliding windows, in full context, or by position.

Of N tokens, all but the first are predicted (N - 1). Losses are summed over predictions, in nats.
Source: Irie et al. 2021, appendix A.1 (windows of 256, stride 1; full context: one column).
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from fastweights.tasks.language_model.corpus import Split
from fastweights.tasks.language_model.model import LanguageModel, ModelState

Tick = Callable[[int], None]  # takes the number of new predictions


class Measure(NamedTuple):
    """The mean loss on a split, in several units."""

    loss: float  # nats per token
    predictions: int
    perplexity: float  # per token
    word_perplexity: float  # per word, counting ends of lines as words
    bits_per_byte: float | None  # of the text in UTF-8; None if words became `<unk>`
    replaced: int  # words that became `<unk>`, whose spelling no loss counts

    def said(self, unit: str) -> str:
        """Return a text of the perplexities and bits per byte; `unit`: words or bytes."""
        if self.bits_per_byte is None:
            bits = (
                f"no bits per byte ({self.replaced:,} of {self.predictions + 1:,} tokens became "
                "<unk>, whose spelling is not counted)"
            )
        else:
            bits = f"{self.bits_per_byte:.4f} bits per byte"
        return (
            f"perplexity {self.perplexity:.2f} of {unit}, {self.word_perplexity:.2f} of words, "
            f"{bits}"
        )


def mean_loss(total: float, split: Split) -> Measure:
    """Return the mean loss in all units, from the sum over the N - 1 predictions of a split.

    If words became `<unk>`, the loss is not the code length of the text, so bits per byte are
    undefined.
    """
    tokens = len(split.ids)
    loss = total / (tokens - 1)
    of_word = loss * tokens / split.words
    return Measure(
        loss=loss,
        predictions=tokens - 1,
        perplexity=_exp(loss),
        word_perplexity=_exp(of_word),
        bits_per_byte=None if split.replaced else loss * tokens / split.length / math.log(2),
        replaced=split.replaced,
    )


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 700 else math.inf


def sliding_loss(
    model: LanguageModel,
    ids: np.ndarray,
    window: int,
    stride: int,
    at_once: int,
    tick: Tick = lambda count: None,
) -> float:
    """Return the loss over sliding windows of `window` tokens, each starting from a fresh state.

    All positions of the first window are scored. Each later window starts `stride` tokens after the
    previous one, and only its last `stride` positions are scored.

    Args:
        model: the language model.
        ids: tokens.
        window: tokens per window.
        stride: tokens between the starts of windows, 1 to `window`.
        at_once: windows per batch; affects speed only.
        tick: called with the number of new predictions.

    Raises:
        ValueError: the stride is out of range; one line.
    """
    if not 1 <= stride <= window:
        raise ValueError(f"--stride must lie in [1, {window}], the window, not {stride}")
    predictions = len(ids) - 1
    count = 1 + max(0, -(-(predictions - window) // stride))
    total = 0.0
    for first in range(0, count, at_once):
        numbers = np.arange(first, min(first + at_once, count))
        reached = numbers * stride + np.arange(window)[:, None]
        begin = np.where(numbers == 0, 0, window - stride)
        scored = (np.arange(window)[:, None] >= begin) & (reached < predictions)
        losses, _ = _losses(model, ids, reached, scored, None)
        total += losses.sum().item()
        tick(int(scored.sum()))
    return total


def carried_loss(
    model: LanguageModel,
    ids: np.ndarray,
    span: int,
    columns: int,
    tick: Tick = lambda count: None,
) -> float:
    """Return the loss with the state carried through the text.

    Args:
        model: the language model.
        ids: tokens.
        span: tokens per call; affects speed only, except for attention, which has its own window.
        columns: number of pieces that the text is cut into, each starting from a fresh state. With
            one piece, as published, the state carries the whole past.
        tick: called with the number of new predictions.
    """
    predictions, total, state = len(ids) - 1, 0.0, None
    length = -(-predictions // columns)
    starts = length * np.arange(columns)
    for offset in range(0, length, span):
        steps = np.arange(offset, min(offset + span, length))[:, None]
        reached = starts + steps
        scored = reached < predictions
        losses, state = _losses(model, ids, reached, scored, state)
        total += losses.sum().item()
        tick(int(scored.sum()))
    return total


def losses_by_position(
    model: LanguageModel,
    ids: np.ndarray,
    length: int,
    span: int,
    at_once: int,
    tick: Tick = lambda count: None,
) -> Float64[np.ndarray, " length"]:
    """Return the mean loss of the prediction after 1, 2, ... `length` tokens from a fresh state.

    The mean is over consecutive pieces of the text; a shorter piece at the end is ignored.

    Raises:
        ValueError: the text is shorter than one piece; one line.
    """
    pieces = (len(ids) - 1) // length
    if not pieces:
        raise ValueError(f"--context {length:,} is more than the {len(ids) - 1:,} predictions")
    sums = np.zeros(length)
    for first in range(0, pieces, at_once):
        starts = length * np.arange(first, min(first + at_once, pieces))
        state = None
        for offset in range(0, length, span):
            steps = np.arange(offset, min(offset + span, length))[:, None]
            losses, state = _losses(model, ids, starts + steps, None, state)
            sums[steps[:, 0]] += losses.view(len(steps), -1).sum(1).cpu().numpy()
            tick(losses.numel())
    return sums / pieces


def length_buckets(losses: Float64[np.ndarray, " length"]) -> Iterator[tuple[int, int, float]]:
    """Yield first position, last position and mean loss for positions 1, 2, 3-4, 5-8, ..."""
    first = 0
    while first < len(losses):
        last = min(max(first + 1, 2 * first), len(losses))
        yield first + 1, last, float(losses[first:last].mean())
        first = last


@torch.no_grad()
def _losses(
    model: LanguageModel,
    ids: np.ndarray,
    reached: Int64[np.ndarray, "T B"],
    scored: Bool[np.ndarray, "T B"] | None,
    state: ModelState | None,
) -> tuple[Float64[Tensor, " scored"], ModelState]:
    """Return the losses of the scored tokens after `reached`, and the new state."""
    device, was_training = model.softmax.weight.device, model.training
    model.eval()
    reached = np.minimum(reached, len(ids) - 2)  # positions beyond the end are not scored
    tokens = torch.from_numpy(ids[reached].astype(np.int64)).to(device)
    targets = torch.from_numpy(ids[reached + 1].astype(np.int64)).to(device)
    hidden, state = model(tokens, state)
    if scored is not None:
        chosen = torch.from_numpy(scored).to(device)
        hidden, targets = hidden[chosen], targets[chosen]
    losses = model.softmax(hidden.flatten(0, -2), targets.flatten()).double()
    model.train(was_training)
    return losses, state
