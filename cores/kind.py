"""The registry's description of a core: constructor, defaults, equation and source."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from fastweights.cores.core import Core
from fastweights.cores.fast_weight_core import FastWeightCore
from fastweights.cores.stack import BlocksConfig, Stack


@dataclass(frozen=True)
class CoreKind:
    """Constructor, defaults, equation and source of a named core."""

    build: Callable[[int, Any], Core]  # (input size, config) -> core
    config: Any  # the defaults, a frozen dataclass
    systematic_name: (
        str  # slow net/update rule/fast net (Irie et al. 2021, appendix D), or a description
    )
    equation: str
    source: str
    has_fast_weights: bool
    delta_rule: bool = False  # whether the state is multiplied by a factor that depends on keys
    features: int = 256  # number of stem features per frame in the published agent
    attends: bool = False  # whether it attends to a window, on whose length no weights depend

    def options(self) -> list[str]:
        """Return the names of the config's fields."""
        return [field.name for field in fields(self.config)]


def alone(
    core: type[Core],
    systematic_name: str,
    config: Any,
    *,
    features: int = 256,
    attends: bool = False,
) -> CoreKind:
    """Return the kind of a core that is built from an input size and `config`.

    Raises:
        ValueError: a core that `attends`, whose config has no field `window`.
    """
    if attends and "window" not in (field.name for field in fields(config)):
        raise ValueError(f"{core.__name__} attends, so {type(config).__name__} needs a `window`")
    return CoreKind(
        core,
        config,
        systematic_name,
        core.equation,
        core.source,
        has_fast_weights=False,
        features=features,
        attends=attends,
    )


def stacked(memory: type[FastWeightCore], systematic_name: str, config: BlocksConfig) -> CoreKind:
    """Return the kind of a `Stack` of residual blocks around a fast-weight memory."""
    build, facts = partial(Stack, memory=memory), (systematic_name, memory.equation, memory.source)
    return CoreKind(build, config, *facts, has_fast_weights=True, delta_rule=memory.delta_rule)
