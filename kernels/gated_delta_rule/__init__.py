from kernels.delta_rule.reference import DeltaRuleState
from kernels.gated_delta_rule import chunked, reference
from kernels.operation import build_operation

gated_delta_rule = build_operation(
    "gated_delta_rule",
    reference.unroll,
    saved={"error": "T B H V"},
    oblong=True,
    chunked=chunked.unroll,
)

__all__ = ["DeltaRuleState", "gated_delta_rule"]
