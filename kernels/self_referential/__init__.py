"""A weight matrix that rewrites itself: y_t, q_t, k_t, b_t = split(W_{t-1}^T x_t).

`reference.py` defines it. Source: Irie et al. 2022 (SRWM), eqs. 5-8.
"""

from fastweights.kernels.feature_maps import FEATURE_MAPS, STRENGTH_MAPS
from fastweights.kernels.machinery.operation import build_operation
from fastweights.kernels.self_referential import reference
from fastweights.kernels.self_referential.reference import SelfReferentialState, program, step

self_referential = build_operation(
    "self_referential",
    reference.unroll,
    saved={
        "query": "T B H D",
        "key": "T B H D",
        "strengths": "T B H 4",
        "difference": "T B H 3*D+4",  # W^T (q - k)
        "final": "B H D 3*D+4",
    },
    head_axes=("D",),
    options={"feature_map": tuple(FEATURE_MAPS), "strength_map": tuple(STRENGTH_MAPS)},
)

__all__ = ["SelfReferentialState", "program", "self_referential", "step"]
