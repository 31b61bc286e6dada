"""DeltaNet: reads the value stored at a key, and writes only the difference to the new value."""

from fastweights.cores.fast_weight_core import FastWeightCore, SlowNet
from fastweights.cores.kind import stacked
from fastweights.cores.stack import DeltaRuleConfig
from fastweights.kernels.delta_rule import delta_rule, step


class DeltaNet(FastWeightCore):
    """Multi-head delta rule; the write strength beta is a scalar per head and step."""

    equation = "W_t = W_(t-1) + k_t (beta_t (v_t - W_(t-1)^T k_t))^T;  y_t = W_t^T q_t"
    source = "Schlag et al. 2021; Irie et al. 2021, eqs. 7-10"
    operation, reference_step = staticmethod(delta_rule), staticmethod(step)
    vectors = ("query", "key", "value", "strength")

    def __init__(self, width: int, heads: int, feature_map: str, max_write_strength: int = 1):
        super().__init__(width, heads, feature_map, max_write_strength)
        parts = self.key(), self.key(), self.value(), self.strength()
        self.slow_net = SlowNet(width, heads, parts)


KIND = stacked(
    DeltaNet, "Feedforward/Delta fast Linear Net", DeltaRuleConfig(feature_map="elu_sum")
)
