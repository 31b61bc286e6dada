"""The Delta MLP, one fast layer at a time, each over the whole unroll.

No matrix depends on another matrix; only the queries do. So every layer is a separate delta rule.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.delta_mlp.reference import DeltaMLPState
from fastweights.kernels.delta_rule import DeltaRuleState, delta_rule
from fastweights.kernels.machinery.composed import composed


@composed("delta_mlp")
def unroll(
    q: Float[Tensor, "T B H K"],
    up_k: Float[Tensor, "T B PH K"],
    up_v: Float[Tensor, "T B PH V"],
    up_beta: Float[Tensor, "T B PH"],
    down_k: Float[Tensor, "T B PH V"],
    down_v: Float[Tensor, "T B PH K"],
    down_beta: Float[Tensor, "T B PH"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaMLPState,
) -> tuple[Float[Tensor, "T B H K"], DeltaMLPState]:
    """Unroll; equals a loop of `reference.step`."""
    heads, matrices = q.shape[2], up_k.shape[2]
    if matrices % heads:
        raise ValueError(
            f"delta_mlp: up_k writes to {matrices} matrices, which is not a multiple of the "
            f"{heads} heads of q"
        )
    written = up_k, up_v, up_beta, down_k, down_v, down_beta
    rows = [part.split(heads, 2) for part in written]
    weights = [part.split(heads, 1) for part in state]
    ups, downs, y = [], [], q
    for k, v, beta, hidden_k, hidden_v, hidden_beta, up, down in zip(*rows, *weights, strict=True):
        asked = y.softmax(-1) if ups else q
        hidden, up = delta_rule(asked, k, v, beta, is_first, DeltaRuleState(up))
        row = hidden.softmax(-1), hidden_k, hidden_v, hidden_beta
        y, down = delta_rule(*row, is_first, DeltaRuleState(down))
        ups.append(up.fast_weights)
        downs.append(down.fast_weights)
    return y, DeltaMLPState(side_by_side(ups, 1), side_by_side(downs, 1))


def side_by_side(of_pairs: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate the pairs' tensors along `axis`, the heads; copy only if there are several."""
    return torch.cat(of_pairs, axis) if len(of_pairs) > 1 else of_pairs[0]
