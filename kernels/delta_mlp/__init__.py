"""A fast feed-forward network: h_n = W_n^T f(h_{n-1}), each W_n written by a delta rule.

`reference.py` defines it. Source: Irie et al. 2021, eqs. 13-14 (Delta MLP).
"""

from fastweights.kernels.delta_mlp.layered import side_by_side
from fastweights.kernels.delta_mlp.layered import unroll as delta_mlp
from fastweights.kernels.delta_mlp.reference import DeltaMLPState, queries, step

__all__ = ["DeltaMLPState", "delta_mlp", "queries", "side_by_side", "step"]
