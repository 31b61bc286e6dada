from kernels.delta_rule import reference
from kernels.delta_rule.reference import DeltaRuleState
from kernels.operation import build_operation

delta_rule = build_operation(
    "delta_rule",
    reference.unroll,
    saved={"error": "T B H V", "final": "B H K V"},
)

__all__ = ["DeltaRuleState", "delta_rule"]
