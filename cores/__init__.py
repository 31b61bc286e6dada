"""Memories for agents: one interface, one file each, and `CORES` from name to kind.

A new core is one file here and one line in `registry.py` (and an operation in `kernels/` if its
recurrence is new). `options` has the cores' options as flags of commands.
"""

from fastweights.cores.building import (
    CORES,
    LARGEST,
    build_core,
    core_config,
    core_kind,
    growth,
)
from fastweights.cores.core import Core, detach, unroll_by_steps, unroll_truncated
from fastweights.cores.facts import count_parameters, network_facts
from fastweights.cores.kind import CoreKind
from fastweights.cores.transformer import sinusoids

__all__ = [
    "CORES",
    "LARGEST",
    "Core",
    "CoreKind",
    "build_core",
    "core_config",
    "core_kind",
    "count_parameters",
    "detach",
    "growth",
    "network_facts",
    "sinusoids",
    "unroll_by_steps",
    "unroll_truncated",
]
