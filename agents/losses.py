"""The three terms of the actor-critic loss, one number per step; the learner reduces them.

Source: Espeholt et al. 2018, section 4.2, unless a function names another.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def log_probability(
    logits: Float[Tensor, "T B A"], action: Int[Tensor, "T B"]
) -> Float[Tensor, "T B"]:
    """Return log pi(action)."""
    return logits.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)


def policy_gradient_loss(
    log_pi: Float[Tensor, "T B"], advantages: Float[Tensor, "T B"]
) -> Float[Tensor, "T B"]:
    """Return -log pi(action) * advantage."""
    return -log_pi * advantages


def clipped_surrogate_loss(
    log_ratio: Float[Tensor, "T B"], advantages: Float[Tensor, "T B"], clip_range: float
) -> Float[Tensor, "T B"]:
    """Return max(-r A, -clip(r, 1 - clip_range, 1 + clip_range) A), r = pi(action) / mu(action).

    Beyond the range, moving the ratio further in the direction of A does not lower the loss.
    Source: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 7.
    """
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return torch.maximum(-ratio * advantages, -clipped * advantages)


def baseline_loss(
    value: Float[Tensor, "T B"], targets: Float[Tensor, "T B"], huber_delta: float | None = None
) -> Float[Tensor, "T B"]:
    """Return e^2 / 2 of the error e = target - V; beyond d = `huber_delta`, d (|e| - d / 2).

    So no derivative with respect to V exceeds `huber_delta`, which is in the unit of V.
    Source: Huber 1964, "Robust Estimation of a Location Parameter".
    """
    if huber_delta is None:
        return 0.5 * F.mse_loss(value, targets, reduction="none")
    return F.huber_loss(value, targets, reduction="none", delta=huber_delta)


def entropy_loss(logits: Float[Tensor, "T B A"]) -> Float[Tensor, "T B"]:
    """Return the negative entropy, sum_a pi(a) log pi(a), in nats."""
    log_pi = logits.log_softmax(-1)
    return (log_pi.exp() * log_pi).sum(-1)
