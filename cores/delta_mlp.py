"""Delta MLP: the fast net is a deep feedforward network, and delta rules write its matrices."""

from jaxtyping import Float
from torch import Tensor

from fastweights.cores.fast_weight_core import FastWeightCore, SlowNet
from fastweights.cores.kind import stacked
from fastweights.cores.stack import VersionedConfig
from fastweights.host import one_of
from fastweights.kernels.delta_mlp import DeltaMLPState, delta_mlp, queries, side_by_side, step

PAIRS = {"A": 2, "B": 1}  # pairs of fast layers, up and down: 4 layers or 2
HIDDEN = 4  # hidden units per unit of a head


class DeltaMLP(FastWeightCore):
    """A feedforward net with fast weights: version A has four fast layers per block, B has two.

    The paper reports version B.
    """

    equation = "y_t = W_t^T softmax(U_t^T q_t);  U_t, W_t by delta rules"
    source = "Irie et al. 2021, eqs. 13-14, appendix A.2"
    operation, reference_step = staticmethod(delta_mlp), staticmethod(step)
    vectors = (
        *("up_key", "up_value", "up_strength", "down_key", "down_value", "down_strength"),
        *("up_query", "down_query"),
    )

    def __init__(
        self,
        width: int,
        heads: int,
        feature_map: str,
        max_write_strength: int = 1,
        version: str = "B",
    ):
        super().__init__(width, heads, feature_map, max_write_strength)
        self.pairs = PAIRS[one_of("version", version, PAIRS)]
        hidden = HIDDEN * self.head_size
        up = self.key(), self.value(hidden), self.strength()
        down = self.key(hidden), self.value(), self.strength()
        self.slow_net = SlowNet(width, heads, (self.key(), *(up + down) * self.pairs))

    def initial_state(self, batch_size: int) -> DeltaMLPState:
        """Return zeros: [B, P H, D, 4 D] and [B, P H, 4 D, D], P pairs, D the head's size."""
        matrices, size = self.pairs * self.heads, self.head_size
        return DeltaMLPState(
            self.zeros(batch_size, matrices, size, HIDDEN * size),
            self.zeros(batch_size, matrices, HIDDEN * size, size),
        )

    def program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        """Return the query; then keys, values and strengths, pairs along the axis of heads."""
        q, *written = self.slow_net(x)
        kinds, heads = len(written) // self.pairs, x.ndim - 1
        return q, *(side_by_side(written[kind::kinds], heads) for kind in range(kinds))

    def programmed(self, x: Float[Tensor, "B D"], state: DeltaMLPState) -> tuple[Tensor, ...]:
        """Return keys, values and strengths of both matrices, then the queries that read them."""
        q, *written = self.program(x)
        _, after = self.step(x, state)
        return *written, *queries(q, after)


KIND = stacked(DeltaMLP, "Feedforward/Delta fast MLP", VersionedConfig())
