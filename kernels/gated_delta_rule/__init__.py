"""The delta rule on a matrix that first decays to a_t W_{t-1}.

`reference.py` defines it. Source: Yang, Kautz & Hatamizadeh 2025 (Gated Delta Networks).
"""

from fastweights.kernels.delta_rule.reference import DeltaRuleState
from fastweights.kernels.gated_delta_rule import chunked, reference
from fastweights.kernels.gated_delta_rule.reference import step
from fastweights.kernels.machinery.operation import build_operation

gated_delta_rule = build_operation(
    "gated_delta_rule",
    reference.unroll,
    saved={"error": "T B H V"},
    oblong=True,
    chunked=chunked.unroll,
)

__all__ = ["DeltaRuleState", "gated_delta_rule", "step"]
