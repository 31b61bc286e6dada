from kernels.delta_rule.columns import wide_delta_rule
from kernels.delta_rule.operation import delta_rule
from kernels.delta_rule.reference import DeltaRuleState

__all__ = ["DeltaRuleState", "delta_rule", "wide_delta_rule"]
