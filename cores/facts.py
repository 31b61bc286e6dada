"""Facts about a network for `meta.json` and tables."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from fastweights.cores.building import core_config


def count_parameters(module: nn.Module) -> int:
    """Return the number of parameters, frozen ones included."""
    return sum(parameter.numel() for parameter in module.parameters())


def network_facts(network: nn.Module, core: str, core_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the core's name, all of its options with defaults, and the number of parameters."""
    options = asdict(core_config(core, **core_options))
    return {"core": core, "core_options": options, "parameters": count_parameters(network)}
