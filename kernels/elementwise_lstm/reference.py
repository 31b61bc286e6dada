"""The cell of an LSTM with element-wise recurrence: each unit reads only its own last cell.

    z_t = tanh(z^x_t + w_z * c_{t-1})
    i_t = sigmoid(i^x_t + w_i * c_{t-1})        f_t = sigmoid(f^x_t + w_f * c_{t-1})
    c_t = f_t * c_{t-1} + i_t * z_t

The x-parts are projections of the input, computed for all t at once. The e-LSTM ties its input
gate to its forget gate, i_t = 1 - f_t: i^x = -f^x and w_i = -w_f, since 1 - sigmoid(a) is
sigmoid(-a). With zero weights this is the QRNN's pooling: `ifo`, and `fo` if tied.
Source: Irie et al. 2023, eqs. 17-19; Bradbury et al. 2017, eqs. 4 and 5.
"""

from functools import partial
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.recurrence import loop_over_time


class ElementwiseState(NamedTuple):
    """The cell."""

    cell: Float[Tensor, "B D"]


class ElementwiseWeights(NamedTuple):
    """Recurrent weights of the candidate and the gates, one per unit."""

    candidate: Float[Tensor, " D"]
    input_gate: Float[Tensor, " D"]
    forget_gate: Float[Tensor, " D"]


def step(
    candidate: Float[Tensor, "B D"],
    input_gate: Float[Tensor, "B D"],
    forget_gate: Float[Tensor, "B D"],
    state: ElementwiseState,
    weights: ElementwiseWeights,
) -> tuple[Float[Tensor, "B D"], ElementwiseState]:
    """Compute one step; the new cell is both the output and the state."""
    z, i, f = gates(candidate, input_gate, forget_gate, state, weights)
    cell = f * state.cell + i * z
    return cell, ElementwiseState(cell)


def gates(
    candidate: Float[Tensor, "B D"],
    input_gate: Float[Tensor, "B D"],
    forget_gate: Float[Tensor, "B D"],
    state: ElementwiseState,
    weights: ElementwiseWeights,
) -> tuple[Tensor, ...]:
    """Return z_t, i_t and f_t, each [B, D]."""
    z, i, f = (
        part + weight * state.cell
        for part, weight in zip((candidate, input_gate, forget_gate), weights, strict=True)
    )
    return z.tanh(), i.sigmoid(), f.sigmoid()


def unroll(
    candidate: Float[Tensor, "T B D"],
    input_gate: Float[Tensor, "T B D"],
    forget_gate: Float[Tensor, "T B D"],
    is_first: Bool[Tensor, "T B"],
    state: ElementwiseState,
    weights: ElementwiseWeights,
) -> tuple[Float[Tensor, "T B D"], ElementwiseState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    one_step = partial(step, weights=weights)
    rows = candidate, input_gate, forget_gate
    return loop_over_time(one_step, rows, is_first, state, empty=candidate)
