"""xLSTM's matrix memory: C_t = f_t C_{t-1} + i_t k_t v_t^T; reads are normalised by the key sum.

`reference.py` defines it. Source: Beck et al. 2024, eqs. 19-27.
"""

from fastweights.kernels.mlstm.gated import unroll as mlstm
from fastweights.kernels.mlstm.reference import MLSTMState, step

__all__ = ["MLSTMState", "mlstm", "step"]
