"""A fast RNN whose two weight matrices are written by the delta rule (Delta RNN).

    W_t = W_{t-1} + k_t (beta_t (v_t - W_{t-1}^T k_t))^T
    R_t = R_{t-1} + k'_t (beta'_t (v'_t - R_{t-1}^T k'_t))^T
    version B (reported):  y_t = W_t^T q_t + R_t^T softmax(y_{t-1})
    version A (ablation):  y_t = softmax(W_t^T q_t + R_t^T y_{t-1})

A fresh state has y_0 = 0, whose softmax is uniform, so version B's recurrent query is never zero.
Source: Irie et al. 2021, eq. 12 (B) and appendix A.2 (A).
"""

from functools import partial
from typing import Literal, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.fast_weights import delta_write, read_memory
from fastweights.kernels.recurrence import loop_over_time

Version = Literal["A", "B"]


class DeltaRNNState(NamedTuple):
    """The fast weights W and R, and the last output y."""

    fast_weights: Float[Tensor, "B H K V"]
    recurrent_fast_weights: Float[Tensor, "B H V V"]
    output: Float[Tensor, "B H V"]  # y_{t-1}, before any output projection


def step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H K"],
    v: Float[Tensor, "B H V"],
    beta: Float[Tensor, "B H"],
    recurrent_k: Float[Tensor, "B H V"],
    recurrent_v: Float[Tensor, "B H V"],
    recurrent_beta: Float[Tensor, "B H"],
    state: DeltaRNNState,
    version: Version = "B",
) -> tuple[Float[Tensor, "B H V"], DeltaRNNState]:
    """Compute one step: write both matrices, then read both."""
    weights = delta_write(state.fast_weights, k, v, beta)
    recurrent = delta_write(state.recurrent_fast_weights, recurrent_k, recurrent_v, recurrent_beta)
    if version == "B":
        y = read_memory(weights, q) + read_memory(recurrent, state.output.softmax(-1))
    else:
        y = (read_memory(weights, q) + read_memory(recurrent, state.output)).softmax(-1)
    return y, DeltaRNNState(weights, recurrent, y)


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    beta: Float[Tensor, "T B H"],
    recurrent_k: Float[Tensor, "T B H V"],
    recurrent_v: Float[Tensor, "T B H V"],
    recurrent_beta: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaRNNState,
    version: Version = "B",
) -> tuple[Float[Tensor, "T B H V"], DeltaRNNState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    inputs = (q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta)
    return loop_over_time(partial(step, version=version), inputs, is_first, state, empty=v)
