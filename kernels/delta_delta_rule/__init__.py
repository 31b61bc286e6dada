"""A delta rule whose q, k, v and beta are read from the matrix of an outer delta rule.

`reference.py` defines it. Source: Irie et al. 2021 (Delta-Delta Net).
"""

from fastweights.kernels.delta_delta_rule.nested import unroll as delta_delta_rule
from fastweights.kernels.delta_delta_rule.reference import DeltaDeltaState, program, step

__all__ = ["DeltaDeltaState", "delta_delta_rule", "program", "step"]
