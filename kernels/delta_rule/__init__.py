"""The delta rule: W_t = W_{t-1} + k_t (beta_t (v_t - W_{t-1}^T k_t))^T, y_t = W_t^T q_t.

`reference.py` defines it. Source: Schlag et al. 2021 (DeltaNet); Irie et al. 2021, eqs. 7-10.
"""

from fastweights.kernels.delta_rule import chunked, reference
from fastweights.kernels.delta_rule.reference import DeltaRuleState, step
from fastweights.kernels.machinery.operation import build_operation

delta_rule = build_operation(
    "delta_rule",
    reference.unroll,
    saved={"error": "T B H V"},
    oblong=True,
    chunked=chunked.unroll,
)

__all__ = ["DeltaRuleState", "delta_rule", "step"]
