"""Feature maps of keys and queries, and the maps of write strengths.

`softmax` and `elu_sum` make non-negative entries that sum to one. With such keys the delta rule is
stable: beta = 1 replaces a value exactly (Schlag et al. 2021, section 4.2). `unit` and `silu_unit`
make vectors of Euclidean length one, for which I - beta k k^T has the eigenvalue 1 - beta: negative
where a write strength exceeds 1 (Grazzi et al. 2025). `elu` is not normalised. All work on the last
axis and keep the shape.
"""

from collections.abc import Callable

import torch
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


def unit(x: Tensor) -> Tensor:
    """x / |x|; the 1e-6 added to |x|^2 makes it smooth at zero, and keys no longer than one."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def silu_unit(x: Tensor) -> Tensor:
    """unit(x sigmoid(x)): the map of Yang et al. 2024 (DeltaNet) and Siems et al. 2025."""
    return unit(F.silu(x))


def double_sigmoid(x: Tensor) -> Tensor:
    """2 sigmoid(x), a write strength in (0, 2)."""
    return 2 * x.sigmoid()


FEATURE_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": softmax,
    "elu_sum": elu_sum,
    "elu": elu,
    "identity": identity,
    "unit": unit,
    "silu_unit": silu_unit,
}
STRENGTH_MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "double_sigmoid": double_sigmoid,
}


def feature_map(name: str) -> Callable[[Tensor], Tensor]:
    """Looks a map up; an unknown name raises a `ValueError` that lists the known ones."""
    if name not in FEATURE_MAPS:
        raise ValueError(unknown("feature map", name, FEATURE_MAPS))
    return FEATURE_MAPS[name]


def strength_map(name: str) -> Callable[[Tensor], Tensor]:
    """Looks the map of a write strength up; errors as `feature_map`."""
    if name not in STRENGTH_MAPS:
        raise ValueError(unknown("strength map", name, STRENGTH_MAPS))
    return STRENGTH_MAPS[name]
