"""Delta RNN: the fast net is an RNN, and delta rules write both of its weight matrices."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from fastweights.cores.fast_weight_core import FastWeightCore, SlowNet, mapped
from fastweights.cores.kind import stacked
from fastweights.cores.stack import FastRecurrentConfig
from fastweights.host import one_of
from fastweights.kernels.delta_rnn import DeltaRNNState, delta_rnn, step


class DeltaRNN(FastWeightCore):
    """An RNN with fast weights; the slow net emits 5 vectors and 2 write strengths per head.

    The paper reports version B; version A is y_t = softmax(W_t^T q_t + R_t^T y_(t-1)).
    """

    equation = "y_t = W_t^T q_t + R_t^T softmax(y_(t-1));  W_t, R_t by delta rules"
    source = "Irie et al. 2021, eqs. 12, 19"
    operation, reference_step = staticmethod(delta_rnn), staticmethod(step)
    vectors = (
        *("query", "key", "value", "strength"),
        *("recurrent_key", "recurrent_value", "recurrent_strength", "recurrent_query"),
    )

    def __init__(
        self,
        width: int,
        heads: int,
        feature_map: str,
        max_write_strength: int,
        version: str,
        recurrent_feature_map: str,
    ):
        super().__init__(width, heads, feature_map, max_write_strength)
        self.version = one_of("version", version, ("A", "B"))
        written = self.key(), self.key(), self.value(), self.strength()
        recurrent_key = mapped(recurrent_feature_map, self.head_size)
        recurrent = recurrent_key, self.value(), self.strength()
        self.slow_net = SlowNet(width, heads, (*written, *recurrent))

    def initial_state(self, batch_size: int) -> DeltaRNNState:
        """Return zeros: W and R [B, H, D, D], and the last output [B, H, D], D the head's size."""
        size = self.head_size
        return DeltaRNNState(
            self.zeros(batch_size, self.heads, size, size),
            self.zeros(batch_size, self.heads, size, size),
            self.zeros(batch_size, self.heads, size),
        )

    def programmed(self, x: Float[Tensor, "B D"], state: DeltaRNNState) -> tuple[Tensor, ...]:
        """Return the slow net's vectors, and the query of R, which comes from the last output."""
        asked = state.output if self.version == "A" else state.output.softmax(-1)
        return *self.program(x), asked

    def constants(self) -> dict[str, Any]:
        """Return the version."""
        return {"version": self.version}


KIND = stacked(DeltaRNN, "Feedforward/Delta fast RNN", FastRecurrentConfig())
