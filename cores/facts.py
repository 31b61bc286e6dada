"""The facts about a network that `meta.json` records."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from fastweights.cores.building import core_config


def network_facts(network: nn.Module, core: str, core_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the core's name, all of its options with defaults, and the number of parameters."""
    options = asdict(core_config(core, **core_options))
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return {"core": core, "core_options": options, "parameters": parameters}
