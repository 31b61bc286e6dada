"""The value head, whose unit may follow the size of its targets."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ValueHead(nn.Linear):
    """A linear layer that estimates discounted returns, in a unit that may adapt to their size.

    If returns are far from 1, weights of ordinary size cannot express them, and their squared
    errors outweigh the policy loss. The value is the linear map's output times `scale`, and
    the loss measures errors in units of `scale`.

    Args:
        in_features: size E of the input.
        scale: the unit, in discounted clipped rewards.
        normalize: let the unit follow the value targets; `scale` is then its lower bound.
    """

    scale: Float[Tensor, ""]

    def __init__(self, in_features: int, scale: float = 1.0, normalize: bool = False):
        super().__init__(in_features, 1)
        self.normalize, self.lower_bound = normalize, scale
        self.register_buffer("scale", torch.tensor(float(scale)), persistent=normalize)

    def forward(self, y: Float[Tensor, "*T B E"]) -> Float[Tensor, "*T B"]:
        """Return the values, in discounted clipped rewards."""
        return super().forward(y).squeeze(-1) * self.scale

    @torch.no_grad()
    def follow(self, mean_square: Float[Tensor, ""], weight: float) -> None:
        """Move the squared unit towards the targets' `mean_square` by the fraction `weight`.

        The layer's weights change inversely, so that the values stay the same. This is PopArt (van
        Hasselt et al. 2016, section 2.1) without its shift, which the bias can learn. The lower
        bound prevents rare rewards from being magnified.
        """
        wanted = mean_square.clamp(min=self.lower_bound**2).to(self.scale.dtype)
        scale = torch.lerp(self.scale.square(), wanted, weight).sqrt()
        for parameter in (self.weight, self.bias):
            parameter.mul_(self.scale / scale)
        self.scale.copy_(scale)
