"""A feedforward layer with highway gates: the size of an LSTM, but no memory."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from fastweights.cores.core import Core
from fastweights.cores.feedforward import NoState
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.cores.kind import alone


@dataclass(frozen=True, kw_only=True)
class GatedConfig:
    """Sizes of the gated feedforward core."""

    width: int = 256
    """Number of units."""


class FeedforwardGated(Core):
    """A stateless LSTM cell: a linear map of the input replaces the previous cell state.

    The paper gives the sizes (320 features, 256 units, 1.7 M parameters) but no equation. Four maps
    with biases match this number of parameters.
    """

    equation = "y_t = f_t * W x_t + i_t * g_t;  i_t, f_t, g_t from x_t"
    source = "Srivastava et al. 2015, eq. 2; Irie et al. 2021, Table 8"

    def __init__(self, input_size: int, config: GatedConfig | None = None):
        super().__init__()
        config = config or GatedConfig()
        self.input_size, self.output_size = input_size, config.width
        self.maps = nn.Linear(input_size, 4 * config.width)

    def initial_state(self, batch_size: int) -> NoState:
        """Return the state without tensors."""
        return NoState()

    def step(self, x: Float[Tensor, "B D"], state: NoState) -> tuple[Float[Tensor, "B E"], NoState]:
        """Apply the layer to x [B, D]."""
        check_step(self, x, state)
        return self._layer(x), state

    def unroll(
        self, x: Float[Tensor, "T B D"], state: NoState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B E"], NoState]:
        """Apply the layer to all rows at once."""
        check_inputs(self, x, state, is_first)
        return self._layer(x), state

    def _layer(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch E"]:
        transform, carry, candidate, carried = self.maps(x).chunk(4, -1)
        return carry.sigmoid() * carried + transform.sigmoid() * candidate.tanh()


KIND = alone(FeedforwardGated, "Feedforward, highway-gated", GatedConfig(), features=320)
