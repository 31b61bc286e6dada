"""Delta MLP: the fast net is a deep feedforward network, and delta rules write its matrices."""

import torch
from jaxtyping import Float
from torch import Tensor

from cores.fast_weight_core import SCALAR, FastWeightCore, SlowNet
from cores.stack import chosen
from kernels.delta_mlp import DeltaMLPState, delta_mlp
from kernels.delta_mlp.reference import queries, step

PAIRS = {"A": 2, "B": 1}  # of fast layers, up and down: 4 layers or 2
HIDDEN = 4  # times a head's size


class DeltaMLP(FastWeightCore):
    """Version A has four fast layers a block, B (the reported one) two."""

    equation = "y_t = W_t^T softmax(U_t^T q_t);  U_t, W_t by delta rules"
    source = "Irie et al. 2021, eqs. 13-14, appendix A.2"
    operation, law = staticmethod(delta_mlp), staticmethod(step)
    vectors = (
        *("up_key", "up_value", "up_strength", "down_key", "down_value", "down_strength"),
        *("up_query", "down_query"),
    )

    def __init__(self, width: int, heads: int, feature_map: str, version: str = "B"):
        super().__init__(width, heads, feature_map)
        self.pairs = PAIRS[chosen("version", version, tuple(PAIRS))]
        size, hidden = self.head_size, HIDDEN * self.head_size
        pair = (size, hidden, SCALAR, hidden, size, SCALAR)
        self.slow_net = SlowNet(width, heads, (size, *pair * self.pairs))

    def initial_state(self, batch_size: int) -> DeltaMLPState:
        matrices, size = self.pairs * self.heads, self.head_size
        return DeltaMLPState(
            self.zeros(batch_size, matrices, size, HIDDEN * size),
            self.zeros(batch_size, matrices, HIDDEN * size, size),
        )

    def program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        q, *vectors = self.slow_net(x)
        kinds, heads = len(vectors) // self.pairs, x.ndim - 1
        up_k, up_v, up_beta, down_k, down_v, down_beta = (
            torch.cat(vectors[kind::kinds], heads) for kind in range(kinds)
        )
        phi = self.feature_map
        up, down = (phi(up_k), up_v, up_beta.sigmoid()), (phi(down_k), down_v, down_beta.sigmoid())
        return phi(q), *up, *down

    def programmed(self, x: Float[Tensor, "B D"], state: DeltaMLPState) -> tuple[Tensor, ...]:
        q, *written = self.program(x)
        _, after = self.step(x, state)
        return *written, *queries(q, after)
