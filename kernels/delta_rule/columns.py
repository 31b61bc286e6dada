"""The delta rule on matrices wider than the compiled kernels' rows.

The columns of W do not see each other: each is written by the same keys toward its own value. So a
wide matrix is several narrow ones side by side, here as further heads.
"""

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from kernels.cpu_call import LANES
from kernels.delta_rule.operation import delta_rule
from kernels.delta_rule.reference import DeltaRuleState

WIDEST = LANES[-1]


def wide_delta_rule(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H K"],
    v: Float[Tensor, "T B H V"],
    beta: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "T B H V"], DeltaRuleState]:
    """As `delta_rule`, for any V."""
    V = v.shape[-1]
    pieces = -(-V // WIDEST)
    if pieces == 1:
        return delta_rule(q, k, v, beta, is_first, state)
    width = -(-V // pieces)
    q, k, beta = (row.repeat_interleave(pieces, 2) for row in (q, k, beta))
    v, weights = (F.pad(x, (0, pieces * width - V)) for x in (v, state.fast_weights))
    v = v.unflatten(-1, (pieces, width)).flatten(2, 3)
    weights = weights.unflatten(-1, (pieces, width)).movedim(-2, 2).flatten(1, 2)
    y, after = delta_rule(q, k, v, beta, is_first, DeltaRuleState(weights))
    y = y.unflatten(2, (-1, pieces)).flatten(3)[..., :V]
    weights = after.fast_weights.unflatten(1, (-1, pieces)).movedim(2, -2).flatten(-2)[..., :V]
    return y, DeltaRuleState(weights)
