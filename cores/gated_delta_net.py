"""Gated DeltaNet: a DeltaNet whose fast weights decay at a rate that the input sets."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from fastweights.cores.fast_weight_core import SCALAR, FastWeightCore, SlowNet
from fastweights.cores.kind import stacked
from fastweights.cores.stack import DeltaRuleConfig
from fastweights.kernels.gated_delta_rule import DeltaRuleState, gated_delta_rule, step


class GatedDeltaNet(FastWeightCore):
    """The published rule and decay, with this project's feature maps for keys and queries.

    The published layer's short convolutions and gated output norm are left out. The decay is
    exp(-rate softplus(x + bias)). Initially, the rate is in [1, 16] and softplus(bias) in
    [0.001, 0.1], as in Dao & Gu 2024.
    """

    equation = "W_t = a_t W_(t-1) + k_t (beta_t (v_t - a_t W_(t-1)^T k_t))^T;  y_t = W_t^T q_t"
    source = "Yang et al. 2025"
    operation, reference_step = staticmethod(gated_delta_rule), staticmethod(step)
    vectors = ("query", "key", "value", "strength", "decay")

    def __init__(self, width: int, heads: int, feature_map: str, max_write_strength: int = 1):
        super().__init__(width, heads, feature_map, max_write_strength)
        parts = self.key(), self.key(), self.value(), self.strength(), SCALAR
        self.slow_net = SlowNet(width, heads, parts)
        log_rate, bias = fresh_decay(heads)
        self.log_rate, self.decay_bias = nn.Parameter(log_rate), nn.Parameter(bias)

    def initial_state(self, batch_size: int) -> DeltaRuleState:
        """Return zero fast weights [B, H, D, D], D the head's size."""
        return DeltaRuleState(self.zeros(batch_size, self.heads, self.head_size, self.head_size))

    def program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        """Return query, key, value, write strength, and the logarithm of the decay."""
        *written, fading = self.slow_net(x)
        return *written, log_decay(fading, self.log_rate, self.decay_bias)

    def programmed(self, x: Float[Tensor, "B D"], state: DeltaRuleState) -> tuple[Tensor, ...]:
        """Return the same as `program`, but the decay itself."""
        *written, decay = self.program(x)
        return *written, decay.exp()


KIND = stacked(
    GatedDeltaNet,
    "Feedforward/Gated delta fast Linear Net",
    DeltaRuleConfig(feature_map="elu_sum"),
)


def fresh_decay(heads: int) -> tuple[Float[Tensor, " H"], Float[Tensor, " H"]]:
    """Return initial parameters of a decay: log rates, and biases (Dao & Gu 2024)."""
    log_rate = torch.empty(heads).uniform_(1, 16).log()
    fading = torch.empty(heads).uniform_(-3, -1).mul(torch.tensor(10.0).log()).exp()
    return log_rate, fading.expm1().log()  # the inverse of softplus


def log_decay(
    fading: Float[Tensor, "*batch H"], log_rate: Float[Tensor, " H"], bias: Float[Tensor, " H"]
) -> Float[Tensor, "*batch H"]:
    """Return the logarithm of the decay: -rate softplus(fading + bias)."""
    return -log_rate.exp() * F.softplus(fading + bias)
