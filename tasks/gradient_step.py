"""One optimiser step at a given learning rate, with the gradient clipped by its norm."""

import math

import torch
from torch import nn


def gradient_step(optimiser: torch.optim.Optimizer, rate: float, clip: float) -> float:
    """Take a step, or leave all weights unchanged if the gradient is not finite.

    Args:
        optimiser: an optimiser with one parameter group whose gradients are computed.
        rate: the learning rate.
        clip: maximum norm of the gradient; 0: no limit.

    Returns:
        The norm of the gradient before clipping. If it is not finite, no step was taken.
    """
    (group,) = optimiser.param_groups
    group["lr"] = rate
    norm = nn.utils.clip_grad_norm_(group["params"], clip or math.inf).item()
    if math.isfinite(norm):  # clipping would turn an infinite entry into NaN
        optimiser.step()
    return norm
