"""Several successive delta-rule writes per step, and one read after the last write.

    W_{t,0} = W_{t-1}, or a_t W_{t-1} in the gated form
    W_{t,s} = W_{t,s-1} + k_{t,s} (beta_{t,s} (v_{t,s} - W_{t,s-1}^T k_{t,s}))^T,   s = 1 .. S
    W_t = W_{t,S},   y_t = W_t^T q_t

A step multiplies W by a product of S matrices I - beta k k^T. With unit-length keys and beta in
(0, 2), two such matrices can rotate a plane by any angle, and S of them can perform any permutation
of S + 1 elements (a product of S transpositions, each with beta = 2).
Source: Siems et al. 2025 (DeltaProduct, Gated DeltaProduct).
"""

from jaxtyping import Float
from torch import Tensor

from fastweights.kernels.delta_rule.reference import DeltaRuleState
from fastweights.kernels.fast_weights import delta_write, read_memory


def step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    beta: Float[Tensor, "B H S"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "B H V"], DeltaRuleState]:
    """Compute one step: S writes in order, then read."""
    weights = state.fast_weights
    for s in range(k.shape[2]):
        weights = delta_write(weights, k[:, :, s], v[:, :, s], beta[:, :, s])
    return read_memory(weights, q), DeltaRuleState(weights)


def gated_step(
    q: Float[Tensor, "B H K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    beta: Float[Tensor, "B H S"],
    log_decay: Float[Tensor, "B H"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "B H V"], DeltaRuleState]:
    """Compute one step: decay once, then proceed as `step` does."""
    faded = DeltaRuleState(log_decay.exp()[..., None, None] * state.fast_weights)
    return step(q, k, v, beta, faded)
