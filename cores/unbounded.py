"""Which settings let a core's state grow without bound, and the line that says so.

The delta rule takes W to (I - beta k k^T) W + beta k v^T. That never enlarges W where
beta |k|^2 <= 2: for every strength beta in (0, 2), where |k| <= 1. Non-negative keys that sum to
one and keys of Euclidean length one are such. Keys from `elu` and `identity` are not bounded: W can
grow by a factor at every step. A sum of writes grows only in proportion to their number.

The self-referential matrix writes W^T (q - k) under k, for which there is no such bound: its state
stays small over an episode with all four maps, not over any number of steps with any of them.
"""

import logging
from functools import cache
from typing import Any

from fastweights.host.flags import flag

log = logging.getLogger("fastweights")

BOUNDED = ("softmax", "elu_sum", "unit", "silu_unit")  # feature maps whose keys have |k| <= 1
MAPS = ("feature_map", "recurrent_feature_map")  # of a config: what makes keys
REMEDY = "softmax and elu_sum bound it"


def unbounded_maps(config: Any) -> dict[str, str]:
    """By option, the feature maps of a delta rule's config whose keys can be of any length."""
    found = {name: getattr(config, name, None) for name in MAPS}
    return {name: chosen for name, chosen in found.items() if chosen and chosen not in BOUNDED}


def remedy(maps: dict[str, str]) -> str:
    """`the keys of --core-feature-map elu let ...: softmax and elu_sum bound it`."""
    named = " and ".join(f"{flag(f'core_{name}')} {chosen}" for name, chosen in maps.items())
    return f"the keys of {named} let the state grow without bound: {REMEDY}"


@cache
def say_once(core: str, line: str) -> None:
    """A line on the log `fastweights`, once in a process for the same core and settings."""
    log.warning("note: core %s: %s", core, line)
