"""No memory: y = x. The baseline for all memories."""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.cores.core import Core
from fastweights.cores.inputs import check_inputs, check_step
from fastweights.cores.kind import alone


class NoState(NamedTuple):
    """The state of a core without memory: no tensors."""


@dataclass(frozen=True, kw_only=True)
class FeedforwardConfig:
    """No options."""


class Feedforward(Core):
    """The identity (Irie et al. 2021, appendix C: the LSTM model without its LSTM)."""

    equation = "y_t = x_t"
    source = "Espeholt et al. 2018; Irie et al. 2021, appendix C"

    def __init__(self, input_size: int, config: FeedforwardConfig | None = None):
        super().__init__()
        self.input_size = self.output_size = input_size

    def initial_state(self, batch_size: int) -> NoState:
        """Return the state without tensors."""
        return NoState()

    def step(self, x: Float[Tensor, "B D"], state: NoState) -> tuple[Float[Tensor, "B D"], NoState]:
        """Return x and the state unchanged."""
        check_step(self, x, state)
        return x, state

    def unroll(
        self, x: Float[Tensor, "T B D"], state: NoState, is_first: Bool[Tensor, "T B"]
    ) -> tuple[Float[Tensor, "T B D"], NoState]:
        """Return x [T, B, D] and the state unchanged, after a check of the arguments."""
        check_inputs(self, x, state, is_first)
        return x, state


KIND = alone(Feedforward, "Feedforward", FeedforwardConfig())
