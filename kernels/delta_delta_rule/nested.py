"""The outer delta rule over the whole unroll, then the inner one, which it never sees."""

from jaxtyping import Bool, Float
from torch import Tensor

from kernels.delta_delta_rule.reference import DeltaDeltaState, program
from kernels.delta_rule import DeltaRuleState, delta_rule


def unroll(
    q: Float[Tensor, "T B H D"],
    k: Float[Tensor, "T B H D"],
    v: Float[Tensor, "T B H 3*D+1"],
    beta: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaDeltaState,
    feature_map: str = "softmax",
) -> tuple[Float[Tensor, "T B H D"], DeltaDeltaState]:
    """As a loop of `reference.step`."""
    outer = DeltaRuleState(state.outer_fast_weights)
    answer, outer = delta_rule(q, k, v, beta, is_first, outer)
    inner = DeltaRuleState(state.fast_weights)
    y, inner = delta_rule(*program(answer, feature_map), is_first, inner)
    return y, DeltaDeltaState(outer.fast_weights, inner.fast_weights)
