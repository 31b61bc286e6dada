"""Generalised advantage estimation: exponentially weighted n-step advantages.

    delta_t = r_t + gamma_t V_{t+1} - V_t
    A_t     = delta_t + gamma_t lambda A_{t+1}

Source: Schulman et al. 2016, "High-Dimensional Continuous Control Using Generalized Advantage
Estimation", equation 16.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from fastweights.agents.vtrace import Targets


@torch.no_grad()
def gae(
    *,
    discount: Float[Tensor, "T B"],
    reward: Float[Tensor, "T B"],
    value: Float[Tensor, "T B"],
    bootstrap_value: Float[Tensor, " B"],
    gae_lambda: float,
) -> Targets:
    """Compute advantages backwards in time; the value targets are A_t + V_t.

    Args:
        discount: discount of the rewards after step t; zero where the step ended an episode.
        reward: reward of step t.
        value: V of row t.
        bootstrap_value: V of the row after the last.
        gae_lambda: 0 gives one-step advantages, 1 discounted returns minus V.
    """
    next_value = torch.cat([value[1:], bootstrap_value[None]])
    deltas = reward + discount * next_value - value
    carry = discount * gae_lambda

    advantage = torch.zeros_like(bootstrap_value)
    advantages = []
    for t in reversed(range(len(deltas))):
        advantage = deltas[t] + carry[t] * advantage
        advantages.append(advantage)
    stacked = torch.stack(advantages[::-1])
    return Targets(stacked + value, stacked)
