"""Several successive delta-rule writes per step, then one read: y_t = W_t^T q_t.

`reference.py` defines it. Source: Siems et al. 2025 (DeltaProduct, Gated DeltaProduct).
"""

from fastweights.kernels.delta_product.interleaved import gated_unroll as gated_delta_product
from fastweights.kernels.delta_product.interleaved import unroll as delta_product
from fastweights.kernels.delta_product.reference import gated_step, step
from fastweights.kernels.delta_rule import DeltaRuleState

__all__ = ["DeltaRuleState", "delta_product", "gated_delta_product", "gated_step", "step"]
