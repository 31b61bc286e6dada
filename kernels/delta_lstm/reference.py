"""A fast LSTM (Delta LSTM): six matrices written by the delta rule, tied input and forget gates.

For each gate g (main, forget, output), with its own queries, keys, values and strengths:

    W_g <- delta rule(k_g, v_g, beta_g)        R_g <- delta rule(k'_g, v'_g, beta'_g)
    z_g = W_g^T q_g                             r_g = R_g^T p,  p = softmax(y_{t-1})

    u = z_main + r_main      f = sigmoid(z_forget + r_forget)      o = sigmoid(z_output + r_output)
    c_t = f * c_{t-1} + (1 - f) * u
    y_t = c_t * o

These are the equations of version D, for which the paper reports results. Version B has
u = sigmoid(z_main + r_main); C is B with y_t = c_t * o + z_main; A is B with p = y_{t-1} and
y_t = softmax(c_t * o).
Source: Irie et al. 2021, appendix A.2, eqs. 20-40. The paper's equations share one query among all
gates; its code has one query per gate. To share a query, pass an expanded tensor.
"""

from functools import partial
from typing import Literal, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.fast_weights import delta_write, read_memory
from fastweights.kernels.recurrence import loop_over_time

Version = Literal["A", "B", "C", "D"]


class DeltaLSTMState(NamedTuple):
    """Fast weights, cell and last output; the axis of size 3 is main, forget, output."""

    fast_weights: Float[Tensor, "B H 3 K V"]
    recurrent_fast_weights: Float[Tensor, "B H 3 V V"]
    cell: Float[Tensor, "B H V"]
    output: Float[Tensor, "B H V"]  # y_{t-1}, before any output projection


def step(
    q: Float[Tensor, "B H 3 K"],
    k: Float[Tensor, "B H 3 K"],
    v: Float[Tensor, "B H 3 V"],
    beta: Float[Tensor, "B H 3"],
    recurrent_k: Float[Tensor, "B H 3 V"],
    recurrent_v: Float[Tensor, "B H 3 V"],
    recurrent_beta: Float[Tensor, "B H 3"],
    state: DeltaLSTMState,
    version: Version = "D",
) -> tuple[Float[Tensor, "B H V"], DeltaLSTMState]:
    """Compute one step: write all six matrices, then read them."""
    weights = delta_write(state.fast_weights, k, v, beta)
    recurrent = delta_write(state.recurrent_fast_weights, recurrent_k, recurrent_v, recurrent_beta)
    recurrent_query = state.output if version == "A" else state.output.softmax(-1)
    z = read_memory(weights, q)
    main, forget, output = (z + read_memory(recurrent, recurrent_query.unsqueeze(-2))).unbind(-2)
    u = main if version == "D" else main.sigmoid()
    f, o = forget.sigmoid(), output.sigmoid()
    cell = f * state.cell + (1 - f) * u
    y = cell * o
    if version == "A":
        y = y.softmax(-1)
    elif version == "C":
        y = y + z[..., 0, :]
    return y, DeltaLSTMState(weights, recurrent, cell, y)


def unroll(
    q: Float[Tensor, "T B H 3 K"],
    k: Float[Tensor, "T B H 3 K"],
    v: Float[Tensor, "T B H 3 V"],
    beta: Float[Tensor, "T B H 3"],
    recurrent_k: Float[Tensor, "T B H 3 V"],
    recurrent_v: Float[Tensor, "T B H 3 V"],
    recurrent_beta: Float[Tensor, "T B H 3"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaLSTMState,
    version: Version = "D",
) -> tuple[Float[Tensor, "T B H V"], DeltaLSTMState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    inputs = (q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta)
    return loop_over_time(
        partial(step, version=version), inputs, is_first, state, empty=v[..., 0, :]
    )
