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
