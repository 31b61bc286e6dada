from kernels.dispatch import Operation
from kernels.recurrent_delta_rule import reference
from kernels.recurrent_delta_rule.reference import RecurrentDeltaRuleState, RecurrentWeights

recurrent_delta_rule = Operation("recurrent_delta_rule", reference.unroll)

__all__ = ["RecurrentDeltaRuleState", "RecurrentWeights", "recurrent_delta_rule"]
