"""A delta rule whose keys, values, queries and strengths are read from an outer delta rule.

    S_t = S_(t-1) + k_t (beta_t (v_t - S_(t-1)^T k_t))^T,   q'_t, k'_t, v'_t, b'_t = S_t^T q_t
    W_t = W_(t-1) + phi(k'_t) (sigma(b'_t) (v'_t - W_(t-1)^T phi(k'_t)))^T
    y_t = W_t^T phi(q'_t)

Source: Irie et al. 2021, section 3.1 and appendix A.3 (Delta-Delta Net).
"""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from fastweights.kernels import feature_maps
from fastweights.kernels.fast_weights import delta_write, read_memory


class DeltaDeltaState(NamedTuple):
    """The outer fast weights S and the inner fast weights W."""

    outer_fast_weights: Float[Tensor, "B H D 3*D+1"]
    fast_weights: Float[Tensor, "B H D D"]


def program(
    answer: Float[Tensor, "*batch P"], feature_map: str, strength_map: str
) -> tuple[Tensor, ...]:
    """Return the inner query, key, value and strength from the outer output, P = 3 D + 1."""
    size, phi = answer.shape[-1] // 3, feature_maps.feature_map(feature_map)
    q, k, v, beta = answer.split((size, size, size, 1), -1)
    return phi(q), phi(k), v, feature_maps.strength_map(strength_map)(beta.squeeze(-1))


def step(
    q: Float[Tensor, "B H D"],
    k: Float[Tensor, "B H D"],
    v: Float[Tensor, "B H 3*D+1"],
    beta: Float[Tensor, "B H"],
    state: DeltaDeltaState,
    feature_map: str = "softmax",
    strength_map: str = "sigmoid",
) -> tuple[Float[Tensor, "B H D"], DeltaDeltaState]:
    """Compute one step: write and read the outer matrix, then the inner one."""
    outer = delta_write(state.outer_fast_weights, k, v, beta)
    inner_q, *written = program(read_memory(outer, q), feature_map, strength_map)
    inner = delta_write(state.fast_weights, *written)
    return read_memory(inner, inner_q), DeltaDeltaState(outer, inner)
