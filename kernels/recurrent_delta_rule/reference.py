"""The delta rule with a recurrent slow net (Recurrent Delta Net).

    h_t    = tanh(y_{t-1})
    q_t    = phi(q^x_t + h_t R_q)             k_t = phi(k^x_t + h_t R_k)
    v_t    = v^x_t + h_t R_v               beta_t = sigma(beta^x_t + h_t r_beta)
    W_t    = W_{t-1} + k_t (beta_t (v_t - W_{t-1}^T k_t))^T
    y_t    = W_t^T q_t

As published, phi is softmax and sigma the sigmoid. The x-parts are projections of the input,
computed for all t at once; R_* are per head.
Source: Irie et al. 2021, eqs. 15-18.
"""

from functools import partial
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels import feature_maps
from fastweights.kernels.fast_weights import delta_write, read_memory
from fastweights.kernels.recurrence import loop_over_time


class RecurrentDeltaRuleState(NamedTuple):
    """The fast weights W and the last output y."""

    fast_weights: Float[Tensor, "B H K V"]
    output: Float[Tensor, "B H V"]  # y_{t-1}, before any output projection


class RecurrentWeights(NamedTuple):
    """The slow net's recurrent weights. All current callers have equal key and value sizes."""

    query: Float[Tensor, "H V K"]
    key: Float[Tensor, "H V K"]
    value: Float[Tensor, "H V V"]
    strength: Float[Tensor, "H V"]


def step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H K"],
    v: Float[Tensor, "B H V"],
    beta: Float[Tensor, "B H"],
    state: RecurrentDeltaRuleState,
    recurrent: RecurrentWeights,
    feature_map: str = "softmax",
    strength_map: str = "sigmoid",
) -> tuple[Float[Tensor, "B H V"], RecurrentDeltaRuleState]:
    """Compute one step; q, k, v and beta are the x-parts, before feature and strength maps."""
    query, key, value, strength = program(
        q, k, v, beta, state, recurrent, feature_map, strength_map
    )
    weights = delta_write(state.fast_weights, key, value, strength)
    y = read_memory(weights, query)
    return y, RecurrentDeltaRuleState(weights, y)


def program(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H K"],
    v: Float[Tensor, "B H V"],
    beta: Float[Tensor, "B H"],
    state: RecurrentDeltaRuleState,
    recurrent: RecurrentWeights,
    feature_map: str = "softmax",
    strength_map: str = "sigmoid",
) -> tuple[Tensor, ...]:
    """Return q_t, k_t, v_t and beta_t from their x-parts and the last output."""
    h, phi = state.output.tanh(), feature_maps.feature_map(feature_map)
    query = phi(q + _per_head(h, recurrent.query))
    key = phi(k + _per_head(h, recurrent.key))
    value = v + _per_head(h, recurrent.value)
    strength = beta + (h * recurrent.strength).sum(-1)
    return query, key, value, feature_maps.strength_map(strength_map)(strength)


def _per_head(h: Float[Tensor, "B H V"], matrix: Float[Tensor, "H V K"]) -> Float[Tensor, "B H K"]:
    return (h.transpose(0, 1) @ matrix).transpose(0, 1)


def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    beta: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: RecurrentDeltaRuleState,
    recurrent: RecurrentWeights,
    feature_map: str = "softmax",
    strength_map: str = "sigmoid",
) -> tuple[Float[Tensor, "T B H V"], RecurrentDeltaRuleState]:
    """Apply `step` to every row; see `kernels.recurrence.loop_over_time`."""
    options = {"feature_map": feature_map, "strength_map": strength_map}
    one_step = partial(step, recurrent=recurrent, **options)
    return loop_over_time(one_step, (q, k, v, beta), is_first, state, empty=v)
