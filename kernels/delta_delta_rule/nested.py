"""The outer delta rule over the whole unroll, then the inner one, which the outer never reads."""

from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.delta_delta_rule.reference import DeltaDeltaState
from fastweights.kernels.delta_rule import DeltaRuleState, delta_rule
from fastweights.kernels.machinery.composed import composed
from fastweights.kernels.split_map import Part, split_map


@composed("delta_delta_rule")
def unroll(
    q: Float[Tensor, "T B H D"],
    k: Float[Tensor, "T B H D"],
    v: Float[Tensor, "T B H 3*D+1"],
    beta: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaDeltaState,
    feature_map: str = "softmax",
    strength_map: str = "sigmoid",
) -> tuple[Float[Tensor, "T B H D"], DeltaDeltaState]:
    """Unroll; equals a loop of `reference.step`."""
    outer = DeltaRuleState(state.outer_fast_weights)
    answer, outer = delta_rule(q, k, v, beta, is_first, outer)
    inner = DeltaRuleState(state.fast_weights)
    vector = q.shape[-1:]
    key, value, strength = Part(vector, feature_map), Part(vector), Part((), strength_map)
    programs = split_map(answer, (key, key, value, strength))
    y, inner = delta_rule(*programs, is_first, inner)
    return y, DeltaDeltaState(outer.fast_weights, inner.fast_weights)
