"""V-trace: off-policy corrected value targets and policy-gradient advantages.

    rho_t    = pi(a_t | x_t) / mu(a_t | x_t)
    delta_t  = min(rho_clip, rho_t) (r_t + gamma_t V_{t+1} - V_t)
    vs_t     = V_t + delta_t + gamma_t min(c_clip, rho_t) (vs_{t+1} - V_{t+1})
    A_t      = min(pg_rho_clip, rho_t) (r_t + gamma_t vs_{t+1} - V_t)

Source: Espeholt et al. 2018, section 4.1 (eq. 1 and the recursion after it, section 4.2 for A).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Targets(NamedTuple):
    """Value and policy targets, without gradient."""

    value_targets: Float[Tensor, "T B"]
    advantages: Float[Tensor, "T B"]


@torch.no_grad()
def vtrace(
    *,
    log_rho: Float[Tensor, "T B"],
    discount: Float[Tensor, "T B"],
    reward: Float[Tensor, "T B"],
    value: Float[Tensor, "T B"],
    bootstrap_value: Float[Tensor, " B"],
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    pg_rho_clip: float | None = 1.0,
) -> Targets:
    """Compute the targets by a recursion backwards in time.

    Args:
        log_rho: log pi(a|x) - log mu(a|x) of the actions taken.
        discount: discount of the rewards after step t; zero where the step ended an episode.
        reward: reward of step t.
        value: V of row t.
        bootstrap_value: V of the row after the last.
        rho_clip: maximum importance weight in the temporal differences.
        c_clip: maximum importance weight in the trace back through time.
        pg_rho_clip: maximum importance weight in the advantages. None omits the weight, for losses
            that already contain the ratio pi/mu.
    """
    rho = log_rho.exp()
    next_value = torch.cat([value[1:], bootstrap_value[None]])
    deltas = rho.clamp(max=rho_clip) * (reward + discount * next_value - value)
    carry = discount * rho.clamp(max=c_clip)

    correction = torch.zeros_like(bootstrap_value)
    corrections = []
    for t in reversed(range(len(deltas))):
        correction = deltas[t] + carry[t] * correction
        corrections.append(correction)
    value_targets = value + torch.stack(corrections[::-1])

    next_target = torch.cat([value_targets[1:], bootstrap_value[None]])
    advantages = reward + discount * next_target - value
    if pg_rho_clip is not None:
        advantages = rho.clamp(max=pg_rho_clip) * advantages
    return Targets(value_targets, advantages)
