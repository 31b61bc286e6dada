from fastweights.kernels.feature_maps import FEATURE_MAPS, STRENGTH_MAPS
from fastweights.kernels.machinery.operation import build_operation
from fastweights.kernels.recurrent_delta_rule import reference
from fastweights.kernels.recurrent_delta_rule.reference import (
    RecurrentDeltaRuleState,
    RecurrentWeights,
    program,
    step,
)

recurrent_delta_rule = build_operation(
    "recurrent_delta_rule",
    reference.unroll,
    saved={
        "heard": "T B H V",  # tanh(y_{t-1})
        "query": "T B H K",
        "key": "T B H K",
        "strength": "T B H",
        "error": "T B H V",
    },
    final=("state.fast_weights",),
    options={"feature_map": tuple(FEATURE_MAPS), "strength_map": tuple(STRENGTH_MAPS)},
)

__all__ = ["RecurrentDeltaRuleState", "RecurrentWeights", "program", "recurrent_delta_rule", "step"]
