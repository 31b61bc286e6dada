"""Settings that let a core's state grow without bound, and the warning about them.

The delta rule maps W to (I - beta k k^T) W + beta k v^T. The factor never enlarges W if
beta |k|^2 <= 2. This holds for every strength beta in (0, 2) if |k| <= 1, as for non-negative keys
that sum to one and for keys of Euclidean norm one. Keys from `elu` and `identity` are unbounded:
W can grow by a factor at every step. A plain sum of writes grows only linearly in their number.

The self-referential matrix writes W^T (q - k) under k, which has no such bound. With all four maps
its state stays small over an episode, but not over arbitrarily many steps.
"""

import logging
from functools import cache
from typing import Any

from fastweights.host import flag

log = logging.getLogger("fastweights")

BOUNDED = ("softmax", "elu_sum", "unit", "silu_unit")  # feature maps whose keys have |k| <= 1
MAPS = ("feature_map", "recurrent_feature_map")  # options of a config that map keys
REMEDY = f"{', '.join(BOUNDED[:-1])} and {BOUNDED[-1]} bound it"


def unbounded_maps(config: Any) -> dict[str, str]:
    """Return the feature maps in a delta rule's config that do not bound keys, by option."""
    found = {name: getattr(config, name, None) for name in MAPS}
    return {name: chosen for name, chosen in found.items() if chosen and chosen not in BOUNDED}


def remedy(maps: dict[str, str]) -> str:
    """Return the warning: `the keys of --core-feature-map elu let ...: softmax and ...`."""
    named = " and ".join(f"{flag(f'core_{name}')} {chosen}" for name, chosen in maps.items())
    return f"the keys of {named} let the state grow without bound: {REMEDY}"


@cache
def say_once(core: str, line: str) -> None:
    """Log `line` as a warning, once per process for the same core and settings."""
    log.warning("note: core %s: %s", core, line)
