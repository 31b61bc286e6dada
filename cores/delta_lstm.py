"""Delta LSTM: the fast net is an LSTM, and delta rules write all six of its weight matrices."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from fastweights.cores.fast_weight_core import FastWeightCore, SlowNet, mapped
from fastweights.cores.kind import stacked
from fastweights.cores.stack import FastRecurrentConfig
from fastweights.host import one_of
from fastweights.kernels.delta_lstm import DeltaLSTMState, delta_lstm, step

GATES = 3  # main, forget, output


class DeltaLSTM(FastWeightCore):
    """An LSTM with fast weights; the slow net emits 15 vectors and 6 write strengths per head.

    The paper reports version D. The reference in `kernels/delta_lstm` shows how A, B and C differ.
    """

    equation = "c_t = f_t * c_(t-1) + (1 - f_t) * u_t;  y_t = o_t * c_t;  six delta rules"
    source = "Irie et al. 2021, appendix A.2"
    operation, reference_step = staticmethod(delta_lstm), staticmethod(step)
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
        self.version = one_of("version", version, ("A", "B", "C", "D"))
        each = GATES, self.head_size
        written = self.key(*each), self.key(*each), self.value(*each), self.strength(GATES)
        recurrent_key = mapped(recurrent_feature_map, *each)
        recurrent = recurrent_key, self.value(*each), self.strength(GATES)
        self.slow_net = SlowNet(width, heads, (*written, *recurrent))

    def initial_state(self, batch_size: int) -> DeltaLSTMState:
        """Return zeros: W and R [B, H, 3, D, D], cell and output [B, H, D], D the head's size."""
        size = self.head_size
        return DeltaLSTMState(
            self.zeros(batch_size, self.heads, GATES, size, size),
            self.zeros(batch_size, self.heads, GATES, size, size),
            self.zeros(batch_size, self.heads, size),
            self.zeros(batch_size, self.heads, size),
        )

    def programmed(self, x: Float[Tensor, "B D"], state: DeltaLSTMState) -> tuple[Tensor, ...]:
        """Return the slow net's vectors, and the query of R, which comes from the last output."""
        asked = state.output if self.version == "A" else state.output.softmax(-1)
        return *self.program(x), asked.unsqueeze(-2).expand(-1, -1, GATES, -1)

    def constants(self) -> dict[str, Any]:
        """Return the version."""
        return {"version": self.version}


KIND = stacked(DeltaLSTM, "Feedforward/Delta fast LSTM", FastRecurrentConfig(version="D"))
