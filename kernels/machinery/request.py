"""The description of a call, from which a backend decides whether it supports the call."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fastweights.kernels.machinery.signature import Sizes


@dataclass(frozen=True)
class Request:
    """A call on `device` with a state of `dtype`. Sizes are by axis letter, options by name.

    Inputs of other dtypes are cast beforehand.
    """

    device: torch.device
    dtype: torch.dtype
    sizes: Sizes
    options: Mapping[str, Any]
