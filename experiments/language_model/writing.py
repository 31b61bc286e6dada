"""Text that a trained language model writes after a prompt."""

import sys
from collections.abc import Iterator
from itertools import chain, islice

import torch

from fastweights.experiments.language_model.saved import SavedModel
from fastweights.tasks.language_model import Sampling, Vocabulary, generate


def prompt_tokens(vocabulary: Vocabulary, text: str) -> list[int]:
    """Return the tokens of a prompt; those of a line's beginning where it is empty.

    A line on stderr counts the words that the vocabulary does not have.

    Raises:
        ValueError: there are such words, and the vocabulary has no <unk>.
    """
    tokens = vocabulary.prompt(text) or vocabulary.prompt("\n")
    unknown = getattr(vocabulary, "unknown", None)
    if unknown is not None and (count := tokens.count(unknown)):
        print(f"note: {count} words of the prompt are not in the vocabulary", file=sys.stderr)
    if None in tokens:
        raise ValueError("--prompt has words that are not in the vocabulary, which has no <unk>")
    return tokens


def written_text(
    saved: SavedModel,
    prompt: list[int],
    sampling: Sampling,
    *,
    length: int,
    seed: int,
    with_prompt: bool,
) -> Iterator[str]:
    """Return the text of the prompt, if asked for, and of each token as it is drawn.

    Args:
        length: number of tokens to draw; 0: without end.
        seed: of the drawing.
    """
    tokens = generate(saved.model, prompt, sampling, torch.Generator().manual_seed(seed))
    drawn = islice(tokens, length or None)
    return saved.vocabulary.pieces(chain(prompt if with_prompt else (), drawn))
