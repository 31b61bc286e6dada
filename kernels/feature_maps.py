"""Feature maps: what keys and queries go through.

`softmax` and `elu_sum` make non-negative entries that sum to one. With such keys the delta rule is
stable: beta = 1 replaces a value exactly (Schlag et al. 2021, section 4.2). `elu` is not
normalised. All work on the last axis and keep the shape.
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from fastweights.host.names import unknown


def softmax(x: Tensor) -> Tensor:
    """exp(x) / sum exp(x)."""
    return x.softmax(-1)


def elu_sum(x: Tensor) -> Tensor:
    """(elu(x) + 1) / sum (elu(x) + 1): Katharopoulos' map, normalised as Schlag et al. do."""
    positive = F.elu(x) + 1
    return positive / (positive.sum(-1, keepdim=True) + 1e-5)


def elu(x: Tensor) -> Tensor:
    """elu(x) + 1, unnormalised (Katharopoulos et al. 2020)."""
    return F.elu(x) + 1


def identity(x: Tensor) -> Tensor:
    """Nothing is done to it."""
    return x


FEATURE_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": softmax,
    "elu_sum": elu_sum,
    "elu": elu,
    "identity": identity,
}


def feature_map(name: str) -> Callable[[Tensor], Tensor]:
    """Looks a map up; an unknown name raises a `ValueError` that lists the known ones."""
    if name not in FEATURE_MAPS:
        raise ValueError(unknown("feature map", name, FEATURE_MAPS))
    return FEATURE_MAPS[name]
