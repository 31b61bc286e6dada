"""DeltaProduct: several delta rules per step, with or without decay; their matrices multiply."""

from dataclasses import dataclass
from typing import Any

from fastweights.cores.fast_weight_core import FastWeightCore, SlowNet
from fastweights.cores.gated_delta_net import DecayingCore
from fastweights.cores.kind import stacked
from fastweights.cores.stack import DeltaRuleConfig
from fastweights.kernels.delta_product import (
    delta_product,
    gated_delta_product,
    gated_step,
    step,
)


@dataclass(frozen=True, kw_only=True)
class DeltaProductConfig(DeltaRuleConfig):
    """Sizes and number of writes per step of the delta product."""

    # As published: SiLU and unit norm for keys and queries, write strengths in (0, 2).
    feature_map: str = "silu_unit"
    max_write_strength: int = 2
    steps_per_token: int = 2
    """Number of delta rules per step (n_h), each with its own key, value and strength."""

    def of_memory(self) -> tuple[Any, ...]:
        """Return the arguments of the memory's constructor."""
        return *super().of_memory(), self.steps_per_token


class DeltaProduct(FastWeightCore):
    """The published rule in this project's residual block, without short convolutions."""

    equation = "W_t: for each of S keys, W += k (beta (v - W^T k))^T;  y_t = W_t^T q_t"
    source = "Siems et al. 2025"
    operation, reference_step = staticmethod(delta_product), staticmethod(step)
    vectors = ("query", "key", "value", "strength")

    def __init__(
        self,
        width: int,
        heads: int,
        feature_map: str,
        max_write_strength: int = 2,
        steps_per_token: int = 2,
    ):
        super().__init__(width, heads, feature_map, max_write_strength)
        parts = self.key(), *written_parts(self, steps_per_token)
        self.slow_net = SlowNet(width, heads, parts)


KIND = stacked(DeltaProduct, "Feedforward/Delta product fast Linear Net", DeltaProductConfig())


class GatedDeltaProduct(DecayingCore):
    """DeltaProduct whose fast weights also decay once per step, as in Gated DeltaNet."""

    equation = "W_t: W *= a_t;  for each of S keys, W += k (beta (v - W^T k))^T;  y_t = W_t^T q_t"
    source = "Siems et al. 2025"
    operation, reference_step = staticmethod(gated_delta_product), staticmethod(gated_step)
    vectors = ("query", "key", "value", "strength", "decay")

    def __init__(
        self,
        width: int,
        heads: int,
        feature_map: str,
        max_write_strength: int = 2,
        steps_per_token: int = 2,
    ):
        super().__init__(width, heads, feature_map, max_write_strength)
        self.emit(self.key(), *written_parts(self, steps_per_token))


GATED = stacked(
    GatedDeltaProduct, "Feedforward/Gated delta product fast Linear Net", DeltaProductConfig()
)


def written_parts(memory: FastWeightCore, steps: int) -> tuple[Any, ...]:
    """Return the slow net's parts with the keys, values and strengths of `steps` writes."""
    each = steps, memory.head_size
    return memory.key(*each), memory.value(*each), memory.strength(steps)
