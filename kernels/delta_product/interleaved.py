"""Delta products as a delta rule over S times as many rows, of which every S-th is read.

A step's first row resets and decays, and its last row reads. The other rows have a zero query,
whose result is discarded. The pass that writes also reads, so these queries cost no extra pass over
the matrix. With S = 1 the query is not copied.
"""

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.kernels.delta_rule import DeltaRuleState, delta_rule
from fastweights.kernels.gated_delta_rule import gated_delta_rule
from fastweights.kernels.machinery.composed import composed


@composed("delta_product")
def unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H S K"],
    v: Float[Tensor, "T B H S V"],
    beta: Float[Tensor, "T B H S"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "T B H V"], DeltaRuleState]:
    """Unroll; equals a loop of `reference.step`."""
    steps = k.shape[3]
    rows = insert_zeros(q, steps, last=True), in_a_row(k), in_a_row(v), in_a_row(beta)
    y, state = delta_rule(*rows, insert_zeros(is_first, steps), state)
    return y[steps - 1 :: steps], state


@composed("gated_delta_product")
def gated_unroll(
    q: Float[Tensor, "T B H K"],
    k: Float[Tensor, "T B H S K"],
    v: Float[Tensor, "T B H S V"],
    beta: Float[Tensor, "T B H S"],
    log_decay: Float[Tensor, "T B H"],
    is_first: Bool[Tensor, "T B"],
    state: DeltaRuleState,
) -> tuple[Float[Tensor, "T B H V"], DeltaRuleState]:
    """Unroll; equals a loop of `reference.gated_step`."""
    steps = k.shape[3]
    rows = insert_zeros(q, steps, last=True), in_a_row(k), in_a_row(v), in_a_row(beta)
    y, state = gated_delta_rule(
        *rows, insert_zeros(log_decay, steps), insert_zeros(is_first, steps), state
    )
    return y[steps - 1 :: steps], state


def in_a_row(parts: Float[Tensor, "T B H S *rest"]) -> Float[Tensor, "TS B H *rest"]:
    """Return each step's S parts as successive rows."""
    return parts.movedim(3, 1).flatten(0, 1)


def insert_zeros(rows: Tensor, steps: int, last: bool = False) -> Tensor:
    """Expand [T, ...] to [T S, ...]: each row precedes S - 1 zero rows, or with `last` follows."""
    if steps == 1:
        return rows
    zeros = (steps - 1, 0) if last else (0, steps - 1)
    return F.pad(rows.unsqueeze(1), (0, 0) * (rows.ndim - 1) + zeros).flatten(0, 1)
