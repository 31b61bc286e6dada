"""The three terms of the actor-critic loss, one number per step; the learner reduces them.

Source: Espeholt et al. 2018, section 4.2.
"""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def log_probability(
    logits: Float[Tensor, "T B A"], action: Int[Tensor, "T B"]
) -> Float[Tensor, "T B"]:
    """log pi(action)."""
    return logits.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)


def policy_gradient_loss(
    logits: Float[Tensor, "T B A"], action: Int[Tensor, "T B"], advantages: Float[Tensor, "T B"]
) -> Float[Tensor, "T B"]:
    """-log pi(action) * advantage."""
    return -log_probability(logits, action) * advantages


def baseline_loss(
    value: Float[Tensor, "T B"], targets: Float[Tensor, "T B"]
) -> Float[Tensor, "T B"]:
    """(target - V)^2 / 2."""
    return 0.5 * F.mse_loss(value, targets, reduction="none")


def entropy_loss(logits: Float[Tensor, "T B A"]) -> Float[Tensor, "T B"]:
    """Negative entropy, sum_a pi(a) log pi(a), in nats."""
    log_pi = logits.log_softmax(-1)
    return (log_pi.exp() * log_pi).sum(-1)
