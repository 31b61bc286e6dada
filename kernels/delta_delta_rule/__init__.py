from kernels.delta_delta_rule.nested import unroll as delta_delta_rule
from kernels.delta_delta_rule.reference import DeltaDeltaState

__all__ = ["DeltaDeltaState", "delta_delta_rule"]
