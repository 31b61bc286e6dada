from kernels.delta_rule import reference
from kernels.delta_rule.reference import DeltaRuleState
from kernels.dispatch import Operation

delta_rule = Operation("delta_rule", reference.unroll)

__all__ = ["DeltaRuleState", "delta_rule"]
