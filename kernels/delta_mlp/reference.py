"""A deep fast network whose matrices are all written by the delta rule (Delta MLP).

    h_0 = q,   h_n = W_n^T f(h_(n-1)),   y = h_N,   f = softmax

Matrices come in pairs, one up to the hidden size and one back down, as in a Transformer's
feed-forward network. There may be several pairs; pair p has the heads p H to (p + 1) H - 1.
The feature map is already applied to `q`. Source: Irie et al. 2021, eqs. 13-14 and appendix A.2.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fastweights.kernels.fast_weights import delta_write, read_memory


class DeltaMLPState(NamedTuple):
    """The fast weights of both layers, for P pairs."""

    up_fast_weights: Float[Tensor, "B PH K V"]
    down_fast_weights: Float[Tensor, "B PH V K"]


class Queries(NamedTuple):
    """The queries of each pair's two matrices."""

    up: Float[Tensor, "B PH K"]
    down: Float[Tensor, "B PH V"]


def step(
    q: Float[Tensor, "B H K"],
    up_k: Float[Tensor, "B PH K"],
    up_v: Float[Tensor, "B PH V"],
    up_beta: Float[Tensor, "B PH"],
    down_k: Float[Tensor, "B PH V"],
    down_v: Float[Tensor, "B PH K"],
    down_beta: Float[Tensor, "B PH"],
    state: DeltaMLPState,
) -> tuple[Float[Tensor, "B H K"], DeltaMLPState]:
    """Compute one step: write all matrices, then read them in sequence."""
    after = DeltaMLPState(
        delta_write(state.up_fast_weights, up_k, up_v, up_beta),
        delta_write(state.down_fast_weights, down_k, down_v, down_beta),
    )
    return _through(q, after)[0], after


def queries(q: Float[Tensor, "B H K"], after: DeltaMLPState) -> Queries:
    """Return the queries with which a step reads the matrices after writing them."""
    return _through(q, after)[1]


def _through(q: Tensor, state: DeltaMLPState) -> tuple[Tensor, Queries]:
    up_queries, down_queries = [], []
    heads = q.shape[1]
    for up, down in zip(*(part.split(heads, 1) for part in state), strict=True):
        up_queries.append(q)
        down_queries.append(read_memory(up, q).softmax(-1))
        y = read_memory(down, down_queries[-1])
        q = y.softmax(-1)
    return y, Queries(torch.cat(up_queries, 1), torch.cat(down_queries, 1))
