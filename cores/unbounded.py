"""Settings that let a core's state grow without bound, and the warning about them.

The delta rule takes W to (I - beta k k^T) W + beta k v^T. The factor never enlarges W where
beta |k|^2 <= 2. This holds for every strength beta in (0, 2) if |k| <= 1, as for non-negative keys
that sum to one and for keys of Euclidean length one. Keys from `elu` and `identity` are not
bounded: W can grow by a factor at every step. A sum of writes grows only in proportion to their
number.

The self-referential matrix writes W^T (q - k) under k, which has no such bound. Its state stays
small over an episode with all four maps, but not over any number of steps.
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
    """Return, by option, the feature maps of a delta rule's config that do not bound keys."""
    found = {name: getattr(config, name, None) for name in MAPS}
    return {name: chosen for name, chosen in found.items() if chosen and chosen not in BOUNDED}


def remedy(maps: dict[str, str]) -> str:
    """Return the warning: `the keys of --core-feature-map elu let ...: softmax and ...`."""
    named = " and ".join(f"{flag(f'core_{name}')} {chosen}" for name, chosen in maps.items())
    return f"the keys of {named} let the state grow without bound: {REMEDY}"


@cache
def say_once(core: str, line: str) -> None:
    """Log `line` as a warning, once in a process for the same core and settings."""
    log.warning("note: core %s: %s", core, line)
