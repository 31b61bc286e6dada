"""mLSTM: an LSTM whose cell is a matrix, written by key and value and decayed by gates."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from fastweights.cores.fast_weight_core import SCALAR, FastWeightCore, SlowNet
from fastweights.cores.kind import stacked
from fastweights.cores.stack import ConvolvedConfig
from fastweights.host import one_of
from fastweights.kernels import identity
from fastweights.kernels.mlstm import MLSTMState, mlstm, step
from fastweights.kernels.split_map import Part

LOG_FORGET = {"sigmoid": F.logsigmoid, "exponential": identity}


@dataclass(frozen=True, kw_only=True)
class MatrixLSTMConfig(ConvolvedConfig):
    """Sizes and forget gate of the mLSTM."""

    forget_gate: str = "sigmoid"
    """Nonlinearity of the forget gate: sigmoid, or exponential like the input gate's."""

    def of_memory(self) -> tuple[Any, ...]:
        """Return the arguments of the memory's constructor."""
        return *super().of_memory(), self.forget_gate


class MatrixLSTM(FastWeightCore):
    """The published cell in this project's residual block.

    The published block's projection to twice the width, short convolution, learned skip, norm of
    the heads, and biases of queries, keys and values are left out. There, the gates' weights start
    at 0; here, they are initialised like all other weights. The gates' biases start as published:
    the input gate's near 0, the forget gate's from 3 to 6 over the heads (0 if exponential).
    """

    equation = "C_t = f_t C_(t-1) + i_t k_t v_t^T;  y_t = o_t * C_t^T q_t / max(|n_t q_t|, 1)"
    source = "Beck et al. 2024"
    operation, reference_step = staticmethod(mlstm), staticmethod(step)
    delta_rule = False
    vectors = ("query", "key", "value", "log_input", "log_forget", "output_gate")

    def __init__(self, width: int, heads: int, forget_gate: str = "sigmoid"):
        super().__init__(width, heads, "identity")
        self.log_forget = LOG_FORGET[one_of("forget_gate", forget_gate, LOG_FORGET)]
        size = self.head_size
        parts = self.value(), self.value(), self.value(), SCALAR, SCALAR, Part((size,), "sigmoid")
        self.slow_net = SlowNet(width, heads, parts)
        kept = torch.linspace(3, 6, heads) if forget_gate == "sigmoid" else torch.zeros(heads)
        self.input_bias = nn.Parameter(torch.randn(heads).mul_(0.1))
        self.forget_bias = nn.Parameter(kept)

    def initial_state(self, batch_size: int) -> MLSTMState:
        """Return zeros: C [B, H, D, D], n [B, H, D], log scale [B, H]; D the head's size."""
        size = self.head_size
        return MLSTMState(
            self.zeros(batch_size, self.heads, size, size),
            self.zeros(batch_size, self.heads, size),
            self.zeros(batch_size, self.heads),
        )

    def program(self, x: Float[Tensor, "*batch D"]) -> tuple[Tensor, ...]:
        """Return q, k, v, the logarithms of the input and forget gates, and the output gate."""
        q, k, v, log_input, forget, output = self.slow_net(x)
        log_forget = self.log_forget(forget + self.forget_bias)
        k = k / self.head_size**0.5
        return q, k, v, log_input + self.input_bias, log_forget, output


KIND = stacked(MatrixLSTM, "Feedforward/Gated sum fast Linear Net", MatrixLSTMConfig())
