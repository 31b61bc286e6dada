"""Recurrent Delta Net (RDN): a DeltaNet whose slow net also reads the last output."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fastweights.cores.fast_weight_core import SCALAR, FastWeightCore, SlowNet
from fastweights.cores.kind import stacked
from fastweights.cores.stack import DeltaRuleConfig
from fastweights.kernels.recurrent_delta_rule import (
    RecurrentDeltaRuleState,
    RecurrentWeights,
    program,
    recurrent_delta_rule,
    step,
)


class RecurrentDeltaNet(FastWeightCore):
    """Delta rule with recurrent weights per head, initialised N(0, 1/sqrt(head size))."""

    equation = "q, k, v, beta = W x_t + R tanh(y_(t-1));  W_t and y_t as in delta_net"
    source = "Irie et al. 2021, eqs. 15-18"
    operation, reference_step = staticmethod(recurrent_delta_rule), staticmethod(step)
    vectors = ("query", "key", "value", "strength")

    def __init__(self, width: int, heads: int, feature_map: str, max_write_strength: int = 1):
        super().__init__(width, heads, feature_map, max_write_strength)
        size, std = self.head_size, self.head_size**-0.5
        self.slow_net = SlowNet(width, heads, (self.value(),) * 3 + (SCALAR,))
        self.recurrent_query = nn.Parameter(torch.randn(heads, size, size).mul_(std))
        self.recurrent_key = nn.Parameter(torch.randn(heads, size, size).mul_(std))
        self.recurrent_value = nn.Parameter(torch.randn(heads, size, size).mul_(std))
        self.recurrent_strength = nn.Parameter(torch.randn(heads, size).mul_(std))

    def initial_state(self, batch_size: int) -> RecurrentDeltaRuleState:
        """Return zeros: W [B, H, D, D], last output [B, H, D], D the head's size."""
        return RecurrentDeltaRuleState(
            self.zeros(batch_size, self.heads, self.head_size, self.head_size),
            self.zeros(batch_size, self.heads, self.head_size),
        )

    def programmed(
        self, x: Float[Tensor, "B D"], state: RecurrentDeltaRuleState
    ) -> tuple[Tensor, ...]:
        """Return query, key, value and strength, with the recurrent part added and maps applied."""
        return program(*self.program(x), state, **self.constants())

    def constants(self) -> dict[str, Any]:
        """Return the recurrent weights, and the names of the maps that follow them."""
        recurrent = RecurrentWeights(
            self.recurrent_query, self.recurrent_key, self.recurrent_value, self.recurrent_strength
        )
        maps = {"feature_map": self.feature_map_name, "strength_map": self.strength_map}
        return {"recurrent": recurrent, **maps}


KIND = stacked(RecurrentDeltaNet, "Recurrent/Delta fast Linear Net", DeltaRuleConfig())
LARGE = replace(KIND, config=DeltaRuleConfig(layers=4, width=256, heads=8))
