"""Linear Transformer (LT): every step adds its value under its key; nothing is ever corrected."""

from jaxtyping import Float
from torch import Tensor

from cores.fast_weight_core import FastWeightCore, SlowNet
from kernels.linear_attention import LinearAttentionState, linear_attention
from kernels.linear_attention.reference import step


class LinearTransformer(FastWeightCore):
    """Multi-head linear attention that is not divided by the sum of its weights.

    Normalised are its keys and queries, by `elu_sum` (the agents') or `softmax`; with `elu` nothing
    is (the paper's sequence tasks).
    """

    equation = "W_t = W_(t-1) + k_t v_t^T;  y_t = W_t^T q_t"
    source = "Katharopoulos et al. 2020; Irie et al. 2021, eqs. 5-7"
    operation, law = staticmethod(linear_attention), staticmethod(step)
    vectors = ("query", "key", "value")

    def __init__(self, width: int, heads: int, feature_map: str):
        super().__init__(width, heads, feature_map)
        self.slow_net = SlowNet(width, heads, (self.head_size,) * 3)

    def initial_state(self, batch_size: int) -> LinearAttentionState:
        return LinearAttentionState(
            self.zeros(batch_size, self.heads, self.head_size, self.head_size)
        )

    def program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        q, k, v = self.slow_net(x)
        return self.feature_map(q), self.feature_map(k), v
