"""Weights from a file, for a module that may be of another shape."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

Built = TypeVar("Built", bound=nn.Module)


def first_misfit(module: nn.Module, weights: Mapping[str, Tensor]) -> str | None:
    """Return the first difference between the weights and the module's, in words, or None."""
    wanted, given = (
        {name: list(weight.shape) for name, weight in state.items()}
        for state in (module.state_dict(), weights)
    )
    for name in {**wanted, **given}:
        if name not in given:
            return f"{name} is missing"
        if name not in wanted:
            return f"{name} is not part of the network"
        if given[name] != wanted[name]:
            return f"{name} has shape {given[name]}, not {wanted[name]}"
    return None


def built_for(weights: Mapping[str, Tensor], build: Callable[[], Built]) -> Built:
    """Return the module that `build` makes, with `weights`.

    It is first made without memory, so that the options in a file cannot allocate more than the
    file holds.

    Raises:
        ValueError: the weights do not fit; one line.
    """
    with torch.device("meta"):
        misfit = first_misfit(build(), weights)
    if misfit:
        raise ValueError(f"its weights do not fit its network: {misfit}")
    module = build()
    module.load_state_dict(weights)
    return module
