"""Feature maps for keys and queries, and maps for write strengths.

`softmax` and `elu_sum` give non-negative entries that sum to one. With such keys the delta rule is
stable: beta = 1 replaces a value exactly (Schlag et al. 2021, section 4.2). `unit` and `silu_unit`
give vectors of Euclidean length one, for which I - beta k k^T has the eigenvalue 1 - beta. This
eigenvalue is negative for write strengths above 1 (Grazzi et al. 2025). `elu` is not normalised.
All maps act on the last axis and preserve the shape.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fastweights.host import unknown_name


def softmax(x: Tensor) -> Tensor:
    """Return exp(x) / sum exp(x)."""
    return x.softmax(-1)


def elu_sum(x: Tensor) -> Tensor:
    """Return (elu(x) + 1) / sum (elu(x) + 1) (Katharopoulos et al.; Schlag et al. 2021)."""
    positive = F.elu(x) + 1
    return positive / (positive.sum(-1, keepdim=True) + 1e-5)


def elu(x: Tensor) -> Tensor:
    """Return elu(x) + 1, unnormalised (Katharopoulos et al. 2020)."""
    return F.elu(x) + 1


def identity(x: Tensor) -> Tensor:
    """Return x."""
    return x


def unit(x: Tensor) -> Tensor:
    """Return x / |x|. Adding 1e-6 to |x|^2 makes it smooth at zero; its length is at most one."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def silu_unit(x: Tensor) -> Tensor:
    """Return unit(x sigmoid(x)), the map of Yang et al. 2024 (DeltaNet) and Siems et al. 2025."""
    return unit(F.silu(x))


def double_sigmoid(x: Tensor) -> Tensor:
    """Return 2 sigmoid(x), a write strength in (0, 2)."""
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
    """Return the map called `name`; raise a `ValueError` listing the known names if unknown."""
    if name not in FEATURE_MAPS:
        raise ValueError(unknown_name("feature map", name, FEATURE_MAPS))
    return FEATURE_MAPS[name]


def strength_map(name: str) -> Callable[[Tensor], Tensor]:
    """Return the write-strength map called `name`; errors as in `feature_map`."""
    if name not in STRENGTH_MAPS:
        raise ValueError(unknown_name("strength map", name, STRENGTH_MAPS))
    return STRENGTH_MAPS[name]
