from fastweights.kernels.delta_delta_rule.nested import unroll as delta_delta_rule
from fastweights.kernels.delta_delta_rule.reference import DeltaDeltaState, program, step

__all__ = ["DeltaDeltaState", "delta_delta_rule", "program", "step"]
