"""One step of an optimiser at a given learning rate, with the gradient's norm limited."""

import math

import torch
from torch import nn


def gradient_step(optimiser: torch.optim.Optimizer, rate: float, clip: float) -> float:
    """Take a step, unless the gradient is not finite: then all weights stay as they are.

    Args:
        optimiser: of one group of weights, which have their gradients.
        rate: the learning rate.
        clip: largest norm of the gradient; 0: no limit.

    Returns:
        The norm of the gradient before it was limited. If it is not finite, no step was taken.
    """
    (group,) = optimiser.param_groups
    group["lr"] = rate
    norm = nn.utils.clip_grad_norm_(group["params"], clip or math.inf).item()
    if math.isfinite(norm):  # clipping turns one infinite entry into NaN
        optimiser.step()
    return norm
