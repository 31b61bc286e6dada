"""Text generation from a model, token by token, with a state of constant size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from fastweights.host import NOT_NEGATIVE, check_range
from fastweights.tasks.language_model.model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Options for sampling the next token."""

    temperature: float = 1.0
    """Temperature, the divisor of log-probabilities: below 1 favours probable tokens; 0 always
    takes the most probable."""
    top_k: int = 0
    """Number of most probable tokens to sample from; 0: all."""
    top_p: float = 1.0
    """Total probability of the most probable tokens to sample from, in (0, 1]."""

    def check(self) -> None:
        """Raise a one-line `ValueError` for an invalid value."""
        check_range("temperature", self.temperature, NOT_NEGATIVE)
        check_range("top_k", self.top_k, NOT_NEGATIVE)
        check_range("top_p", self.top_p, "(0, 1]")


@torch.no_grad()
def generate(
    model: LanguageModel, prompt: Sequence[int], sampling: Sampling, generator: torch.Generator
) -> Iterator[int]:
    """Yield tokens that continue the prompt, endlessly; `generator` is on the CPU.

    The prompt has at least one token.
    """
    device = model.softmax.weight.device
    tokens, state = torch.tensor(prompt, device=device)[:, None], None
    model.eval()
    while True:
        hidden, state = model(tokens, state)
        log_probabilities = model.softmax.log_probabilities(hidden[-1]).float().cpu()[0]
        token = draw(log_probabilities, sampling, generator)
        yield token
        tokens = torch.tensor([[token]], device=device)


def draw(
    log_probabilities: Float[Tensor, " types"], sampling: Sampling, generator: torch.Generator
) -> int:
    """Sample one token."""
    if sampling.temperature == 0:
        return int(log_probabilities.argmax())
    # In float64, and without the largest, it stays finite at any temperature.
    scaled = (log_probabilities - log_probabilities.max()).double() / sampling.temperature
    if 0 < sampling.top_k < len(scaled):
        least = scaled.topk(sampling.top_k).values[-1]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = scaled.softmax(-1).sort(descending=True)
        before = ordered.cumsum(-1) - ordered  # the most probable token always stays
        scaled = scaled.index_fill(0, order[before >= sampling.top_p], -torch.inf)
    return int(torch.multinomial(scaled.softmax(-1), 1, generator=generator))
