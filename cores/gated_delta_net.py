"""Gated DeltaNet: a DeltaNet whose fast weights decay at an input-dependent rate."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from fastweights.cores.fast_weight_core import SCALAR, FastWeightCore, SlowNet
from fastweights.cores.kind import stacked
from fastweights.cores.stack import DeltaRuleConfig
from fastweights.kernels import State
from fastweights.kernels.gated_delta_rule import gated_delta_rule, step
from fastweights.kernels.split_map import Part


class DecayingCore(FastWeightCore):
    """Abstract: fast weights that decay once per step, at an input-dependent rate.

    The decay is exp(-rate softplus(x + bias)), with x from the slow net. Initially, the rate is in
    [1, 16] and softplus(bias) in [0.001, 0.1], as in Dao & Gu 2024.
    """

    def emit(self, *parts: Part) -> None:
        """Create the slow net, whose last output is x, and the decay's parameters."""
        self.slow_net = SlowNet(self.input_size, self.heads, (*parts, SCALAR))
        rate = torch.empty(self.heads).uniform_(1, 16)
        fading = torch.empty(self.heads).uniform_(-3, -1).mul(torch.tensor(10.0).log()).exp()
        self.log_rate = nn.Parameter(rate.log())
        self.decay_bias = nn.Parameter(fading.expm1().log())  # the inverse of softplus

    def program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        """Return query, keys, values, write strengths, and the logarithm of the decay."""
        *written, fading = self.slow_net(x)
        return *written, -self.log_rate.exp() * F.softplus(fading + self.decay_bias)

    def programmed(self, x: Float[Tensor, "B D"], state: State) -> tuple[Tensor, ...]:
        """Return the same as `program`, but with the decay instead of its logarithm."""
        *written, log_decay = self.program(x)
        return *written, log_decay.exp()


class GatedDeltaNet(DecayingCore):
    """The published rule and decay, with this project's feature maps for keys and queries.

    The published layer's short convolutions and gated output norm are left out.
    """

    equation = "W_t = a_t W_(t-1) + k_t (beta_t (v_t - a_t W_(t-1)^T k_t))^T;  y_t = W_t^T q_t"
    source = "Yang et al. 2025"
    operation, reference_step = staticmethod(gated_delta_rule), staticmethod(step)
    vectors = ("query", "key", "value", "strength", "decay")

    def __init__(self, width: int, heads: int, feature_map: str, max_write_strength: int = 1):
        super().__init__(width, heads, feature_map, max_write_strength)
        self.emit(self.key(), self.key(), self.value(), self.strength())


KIND = stacked(
    GatedDeltaNet,
    "Feedforward/Gated delta fast Linear Net",
    DeltaRuleConfig(feature_map="elu_sum"),
)
