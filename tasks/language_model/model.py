"""Language model: embedding, positions, core, adaptive softmax; predicts each next token.

    x_t = sqrt(D) E[token_t] + position_t;  h_t = core(x_t);  p(token_(t+1)) = softmax(E h_t + b)

Optionally, n-gram vectors are added to x_t (`ngram_vectors.py`). The state consists of the core's
state, the number of tokens read and the last tokens, so a text can be read in pieces of any length.
Source: Irie et al. 2021, appendix A.1, after Transformer-XL (Dai et al. 2019).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from fastweights.cores import (
    LARGEST,
    build_core,
    core_config,
    core_kind,
    set_by_models,
    sinusoids,
)
from fastweights.host import check_range, one_of
from fastweights.kernels import State, map_state
from fastweights.tasks.language_model.adaptive_softmax import AdaptiveSoftmax
from fastweights.tasks.language_model.ngram_vectors import NgramVectors

PUBLISHED_CUTOFFS = (20_000, 40_000, 200_000)
POSITIONS = ("sinusoidal", "none")
EMBEDDING_STD = 0.02  # as published; used if linear maps keep PyTorch's initialisation
WIDTH_WITHOUT_CORE = 128  # size of a word vector, for a core without the option width


@dataclass(frozen=True, kw_only=True)
class LanguageModelConfig:
    """Options of a language model, except the number of types."""

    core: str
    core_options: tuple[tuple[str, Any], ...] = ()  # overrides of the core's published defaults
    positions: str = "sinusoidal"
    ngrams: int = 1  # largest n for which n-grams have vectors; 1: no n-grams
    ngram_rows: int = 2**15  # rows of the table for each n
    cutoffs: tuple[int, ...] = PUBLISHED_CUTOFFS
    dropout: float = 0.0  # applied to the core's input and output
    span: int = 256  # attention window, unless set in the core's options
    initial_std: float = 0.02  # of linear maps and the embedding; 0: PyTorch's for linear maps


class ModelState(NamedTuple):
    """The memory of the text so far, of constant size."""

    core: State
    position: Float[Tensor, "B 1"]
    recent: Float[Tensor, "B M"]  # the last tokens' numbers plus 1; M = 0 without n-grams


class LanguageModel(nn.Module):
    """A language model around a core; an all-zero state is a fresh state.

    Weights of linear maps and of the embedding are initialised from N(0, `initial_std`), biases to
    0. The core initialises its other parameters.

    Raises:
        ValueError: an option is out of range; one line.
    """

    def __init__(self, types: int, config: LanguageModelConfig):
        super().__init__()
        one_of("--positions", config.positions, POSITIONS)
        check_range("dropout", config.dropout, "[0, 1)")
        check_range("initial_std", config.initial_std, "[0, 1)")
        if not 1 <= config.span <= LARGEST["window"]:
            raise ValueError(f"--span must lie in 1 to {LARGEST['window']:,}, not {config.span}")
        self.config = config
        options = _core_options(config)
        width = getattr(core_config(config.core, **options), "width", WIDTH_WITHOUT_CORE)
        self.core = build_core(config.core, width, **options)
        self.softmax = AdaptiveSoftmax(types, width, config.cutoffs)
        n, rows = config.ngrams, config.ngram_rows
        self.ngrams = NgramVectors(n, rows, width) if n != 1 else None
        self.dropout = nn.Dropout(config.dropout)
        self.apply(partial(_begin, config.initial_std))

    @property
    def width(self) -> int:
        """The size of a word vector and of the core's output."""
        return self.core.output_size

    def initial_state(self, batch_size: int) -> ModelState:
        """Return a fresh state."""
        zeros = partial(self.softmax.bias.new_zeros, batch_size)
        recent = zeros(self.config.ngrams - 1)
        return ModelState(self.core.initial_state(batch_size), zeros(1), recent)

    def forward(
        self, tokens: Int[Tensor, "T B"], state: ModelState | None = None
    ) -> tuple[Float[Tensor, "T B D"], ModelState]:
        """Return the hidden vectors, the input of `softmax`, and the new state."""
        state = self.initial_state(tokens.shape[1]) if state is None else state
        x = F.embedding(tokens, self.softmax.weight) * self.width**0.5
        if self.config.positions == "sinusoidal":
            steps = torch.arange(len(tokens), device=tokens.device, dtype=state.position.dtype)
            x = x + sinusoids(steps[:, None] + state.position.t(), self.width).to(x.dtype)
        recent = state.recent
        if self.ngrams is not None:
            vectors, recent = self.ngrams(tokens, recent)
            x = x + vectors
        y, core = self.core(self.dropout(x), state.core)
        return self.dropout(y), ModelState(core, state.position + len(tokens), recent)

    def loss(
        self, tokens: Int[Tensor, "T B"], targets: Int[Tensor, "T B"], state: ModelState | None
    ) -> tuple[Float[Tensor, "T B"], ModelState]:
        """Return the targets' negative log-probabilities in nats, and the new state."""
        hidden, state = self(tokens, state)
        return self.softmax(hidden.flatten(0, 1), targets.flatten()).view_as(targets), state


def detached(state: ModelState) -> ModelState:
    """Return the state without its gradient history."""
    return map_state(Tensor.detach, state)


def _core_options(config: LanguageModelConfig) -> dict[str, Any]:
    """Return the core's options, with its own embedding and positions disabled."""
    ours = set_by_models(config.core)
    options = dict(config.core_options)
    options |= {name: "none" for name in ("embed", "positions") if name in ours}
    if core_kind(config.core).attends:
        options.setdefault("window", config.span)
    return options


@torch.no_grad()
def _begin(std: float, module: nn.Module) -> None:
    if isinstance(module, nn.Linear) and std:
        nn.init.normal_(module.weight, std=std)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, AdaptiveSoftmax):
        nn.init.normal_(module.weight, std=std or EMBEDDING_STD)
        if module.tails:
            nn.init.normal_(module.cluster_weight, std=std or EMBEDDING_STD)
