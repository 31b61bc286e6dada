"""Delta-Delta Net: a DeltaNet whose slow weights are the fast weights of another DeltaNet."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from fastweights.cores.fast_weight_core import FastWeightCore, SlowNet
from fastweights.cores.kind import stacked
from fastweights.cores.stack import DeltaRuleConfig
from fastweights.kernels import read_memory
from fastweights.kernels.delta_delta_rule import DeltaDeltaState, delta_delta_rule, program, step


class DeltaDelta(FastWeightCore):
    """Two nested delta rules; the slow net emits 5 D + 1 numbers and a write strength per head."""

    equation = "q', k', v', b' = S_t^T q_t;  S_t and, from these, W_t as in delta_net"
    source = "Irie et al. 2021, section 3.1, appendix A.3"
    operation, reference_step = staticmethod(delta_delta_rule), staticmethod(step)
    vectors = (
        *("outer_query", "outer_key", "outer_value", "outer_strength"),
        *("query", "key", "value", "strength"),
    )

    def __init__(self, width: int, heads: int, feature_map: str, max_write_strength: int = 1):
        super().__init__(width, heads, feature_map, max_write_strength)
        size = self.head_size
        parts = self.key(), self.key(), self.value(3 * size + 1), self.strength()
        self.slow_net = SlowNet(width, heads, parts)

    def initial_state(self, batch_size: int) -> DeltaDeltaState:
        """Return zeros: outer [B, H, D, 3 D + 1], inner [B, H, D, D], D the head's size."""
        size = self.head_size
        return DeltaDeltaState(
            self.zeros(batch_size, self.heads, size, 3 * size + 1),
            self.zeros(batch_size, self.heads, size, size),
        )

    def programmed(self, x: Float[Tensor, "B D"], state: DeltaDeltaState) -> tuple[Tensor, ...]:
        """Return the outer rule's query, key, value and strength, then the inner rule's."""
        outer = self.program(x)
        _, after = self.step(x, state)
        answer = read_memory(after.outer_fast_weights, outer[0])
        return *outer, *program(answer, **self.constants())

    def constants(self) -> dict[str, Any]:
        """Return the names of the maps of the inner rule's keys and strengths."""
        return {"feature_map": self.feature_map_name, "strength_map": self.strength_map}


KIND = stacked(DeltaDelta, "Feedforward/Delta fast Delta Net", DeltaRuleConfig())
