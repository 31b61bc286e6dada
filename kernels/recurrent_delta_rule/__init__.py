"""The delta rule whose q, k, v and beta also depend on the last output, tanh(y_{t-1}).

`reference.py` defines it. Source: Irie et al. 2021, eqs. 15-18 (Recurrent Delta Net).
"""

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
