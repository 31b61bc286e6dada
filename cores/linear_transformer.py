"""Linear Transformer (LT): each step adds the outer product of its key and value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fastweights.cores.fast_weight_core import FastWeightCore, SlowNet
from fastweights.cores.kind import stacked
from fastweights.cores.stack import StackConfig
from fastweights.host import one_of
from fastweights.kernels.linear_attention import (
    LinearAttentionState,
    NormalisedState,
    linear_attention,
    normalised_linear_attention,
    normalised_step,
    step,
)


class Recurrence(NamedTuple):
    """Kernel, definition and fresh state of one variant of the linear Transformer."""

    operation: Callable[..., tuple[Tensor, Any]]
    reference_step: Callable[..., tuple[Tensor, Any]]
    fresh: Callable[[Tensor], Any]  # zero fast weights -> fresh state


def _without_keys(fast_weights: Float[Tensor, "B H K V"]) -> NormalisedState:
    return NormalisedState(fast_weights, torch.zeros_like(fast_weights[..., 0]))


NORMALISERS = {
    "none": Recurrence(linear_attention, step, LinearAttentionState),
    "key_sum": Recurrence(normalised_linear_attention, normalised_step, _without_keys),
}


POSITIVE_MAPS = ("softmax", "elu_sum", "elu")  # the sum of such weights is never 0


@dataclass(frozen=True, kw_only=True)
class LinearTransformerConfig(StackConfig):
    """Sizes, feature map and normaliser of the linear Transformer."""

    # The published agents and sequence tasks use none. key_sum is from Katharopoulos et al.: the
    # sum of the weights, z_t . q_t with z_t = z_(t-1) + k_t.
    normaliser: str = "none"
    """Divisor of the outputs: none, or key_sum, the sum of their weights."""

    def of_memory(self) -> tuple[Any, ...]:
        """Return the arguments of the memory's constructor."""
        return *super().of_memory(), self.normaliser


class LinearTransformer(FastWeightCore):
    """Multi-head linear attention, optionally divided by the sum of the weights.

    With the feature maps `elu_sum` (published agents) and `softmax`, keys and queries sum to one;
    with `elu` (published sequence tasks) they do not.
    """

    equation = "W_t = W_(t-1) + k_t v_t^T;  y_t = W_t^T q_t"
    source = "Katharopoulos et al. 2020; Irie et al. 2021, eqs. 5-7"
    delta_rule = False
    vectors = ("query", "key", "value")

    def __init__(self, width: int, heads: int, feature_map: str, normaliser: str = "none"):
        super().__init__(width, heads, feature_map)
        self.normaliser = one_of("normaliser", normaliser, NORMALISERS)
        if normaliser != "none" and feature_map not in POSITIVE_MAPS:
            raise ValueError(
                f"normaliser {normaliser!r} divides by a sum that may be 0 with the feature map "
                f"{feature_map!r}; use softmax, elu_sum or elu"
            )
        self.slow_net = SlowNet(width, heads, (self.key(), self.key(), self.value()))

    @property
    def operation(self) -> Callable[..., tuple[Tensor, Any]]:
        """The unrolled recurrence of this normaliser."""
        return NORMALISERS[self.normaliser].operation

    @property
    def reference_step(self) -> Callable[..., tuple[Tensor, Any]]:
        """One step of this normaliser's recurrence, its definition."""
        return NORMALISERS[self.normaliser].reference_step

    def initial_state(self, batch_size: int) -> LinearAttentionState | NormalisedState:
        """Return zeros: W [B, H, D, D], D the head's size; with key_sum, also z [B, H, D]."""
        weights = self.zeros(batch_size, self.heads, self.head_size, self.head_size)
        return NORMALISERS[self.normaliser].fresh(weights)


KIND = stacked(
    LinearTransformer,
    "Feedforward/Sum fast Linear Net",
    LinearTransformerConfig(feature_map="elu_sum"),
)
