"""Self-referential weight matrix (SRWM): a matrix that computes, queries and rewrites itself."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fastweights import kernels
from fastweights.cores.fast_weight_core import FastWeightCore
from fastweights.cores.kind import stacked
from fastweights.cores.stack import DeltaRuleConfig
from fastweights.host import one_of
from fastweights.kernels.self_referential import (
    SelfReferentialState,
    program,
    self_referential,
    step,
)


@dataclass(frozen=True, kw_only=True)
class SelfReferentialConfig(DeltaRuleConfig):
    """Sizes and input map of the self-referential matrix."""

    # The published agents use softmax; the papers' equations and other tasks use identity. A
    # softmax over so few units barely depends on its input: queries nearly equal keys, and almost
    # nothing is written (docs/design/self_referential.md).
    input_map: str = "softmax"
    """Feature map of each head's input: softmax (published, remembers little) or identity
    (recommended)."""
    # A query is multiplied by the matrix that produced it (Irie et al. 2023, appendix C.2).
    start: str = "agents"
    """Initial weights: agents (published for agents) or languages (small queries, weak writes)."""

    def of_memory(self) -> tuple[Any, ...]:
        """Return the arguments of the memory's constructor."""
        return *super().of_memory(), self.input_map, self.start


class SelfReferential(FastWeightCore):
    """One self-modifying matrix per head, with trained initial weights, which reads a part of x.

    All weights are initialised as N(0, 1/sqrt(head size)), the columns of the write strengths with
    mean 0 as in the published agents. With the start `languages`, the initial queries are a hundred
    times smaller and the write strengths have mean -1. The published agents read x without
    LayerNorm.
    """

    equation = "y, q, k, b = W_(t-1)^T x;  W_t = W_(t-1) + phi(k) (sigmoid(b) W^T(phi(q)-phi(k)))^T"
    source = "Irie et al. 2022, eqs. 5-8; 2023, eqs. 10-12 (one strength)"
    operation, reference_step = staticmethod(self_referential), staticmethod(step)
    vectors = ("answer", "query", "key", "strength")

    def __init__(
        self,
        width: int,
        heads: int,
        feature_map: str,
        max_write_strength: int,
        input_map: str,
        start: str = "agents",
    ):
        super().__init__(width, heads, feature_map, max_write_strength)
        self.input_map = kernels.feature_map(input_map)
        size = self.head_size
        weights = torch.randn(heads, size, 3 * size + 4).mul_(size**-0.5)
        if one_of("start", start, ("agents", "languages")) == "languages":
            weights[..., size : 2 * size] *= 0.01
            weights[..., 3 * size :] -= 1
        self.initial_weights = nn.Parameter(weights)

    def initial_state(self, batch_size: int) -> SelfReferentialState:
        """Return a zero shift from the trained weights, [B, H, D, 3 D + 4], D the head size."""
        size = self.head_size
        return SelfReferentialState(self.zeros(batch_size, self.heads, size, 3 * size + 4))

    def program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        """Return each head's part of x [..., H, D / H], with the input map applied."""
        return (self.input_map(x.unflatten(-1, (self.heads, self.head_size))),)

    def programmed(
        self, x: Float[Tensor, "B D"], state: SelfReferentialState
    ) -> tuple[Tensor, ...]:
        """Return the output, query, key and four strengths that the matrix computes from x."""
        return program(*self.program(x), state, **self.constants())

    def constants(self) -> dict[str, Any]:
        """Return the trainable weights, and the names of the maps of keys and strengths."""
        maps = {"feature_map": self.feature_map_name, "strength_map": self.strength_map}
        return {"initial_weights": self.initial_weights, **maps}


KIND = stacked(
    SelfReferential, "Self-referential/Delta fast Linear Net", SelfReferentialConfig(heads=8)
)
