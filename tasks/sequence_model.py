"""Sequence model of embedding, core and output layer: reads words, answers at every position.

    x = embedding(word);  y = core.unroll(x);  logits = W y + b

Source: Irie et al. 2021, appendix B.2.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from fastweights.cores import LARGEST, build_core, core_config
from fastweights.host import check_range


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Options of a sequence model; `embedding` is the size of a word vector."""

    core: str
    core_options: tuple[tuple[str, Any], ...] = ()  # overrides of the core's published defaults
    embedding: int = 128
    dropout: float = 0.0  # applied to the embedding and to the core's output
    decoder: int = 0  # hidden units of a layer before the output; 0: no such layer


class SequenceModel(nn.Module):
    """A core that maps `words` input types to `answers` output types; its state starts fresh.

    Raises:
        ValueError: an option is out of range; one line.
    """

    def __init__(self, words: int, answers: int, config: ModelConfig):
        super().__init__()
        core_config(config.core, **dict(config.core_options))  # an embedding may have its size
        most = f"{LARGEST['width']:,}"
        if not 1 <= config.embedding <= LARGEST["width"]:
            raise ValueError(f"--embedding must lie in 1 to {most}, not {config.embedding}")
        check_range("dropout", config.dropout, "[0, 1)")
        self.embedding = nn.Embedding(words, config.embedding)
        self.core = build_core(config.core, config.embedding, **dict(config.core_options))
        if not 0 <= config.decoder <= LARGEST["width"]:
            raise ValueError(f"--decoder must lie in 0 to {most}, not {config.decoder}")
        size = config.decoder or self.core.output_size
        self.hidden = nn.Sequential()  # the identity
        if config.decoder:
            self.hidden = nn.Sequential(nn.Linear(self.core.output_size, size), nn.ReLU())
        self.output = nn.Linear(size, answers)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, tokens: Int[Tensor, "T B"], asked: Bool[Tensor, "T B"]
    ) -> Float[Tensor, "asked answers"]:
        """Return logits at the positions in `asked`, in the order of `asked.nonzero()`."""
        is_first = torch.zeros_like(asked)
        state = self.core.initial_state(tokens.shape[1])
        y, _ = self.core.unroll(self.dropout(self.embedding(tokens)), state, is_first)
        return self.answer(self.dropout(y[asked]))

    def answer(self, y: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch answers"]:
        """Return the logits for the core's outputs."""
        return self.output(self.hidden(y))
