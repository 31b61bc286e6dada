"""The recurrent delta rule on CUDA tensors, forward and backward; the kernels are in `cuda.cu`."""

import torch
from torch import Tensor

from kernels.cuda.arguments import Sizes, fresh, per_head
from kernels.cuda.launch import Kernel, launch
from kernels.cuda.support import refuse

LARGEST_HEAD = 32
OPTIONS = {"feature_map": ("softmax",)}
SAVED = {  # after feature map and sigmoid; error is v - W_{t-1}^T k, hidden is h_t
    "query": "T B H K",
    "key": "T B H K",
    "error": "T B H V",
    "strength": "T B H",
    "hidden": "T B H V",
}
FORWARD = Kernel("recurrent_delta_rule", "forward")
BACKWARD = Kernel("recurrent_delta_rule", "backward")


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    query_weights: Tensor,
    key_weights: Tensor,
    value_weights: Tensor,
    strength_weights: Tensor,
    is_first: Tensor,
    weights: Tensor,
    output: Tensor,
    feature_map: str = "softmax",
    save: bool = True,
) -> tuple:
    """(y, final weights, final output, *SAVED if `save`); shapes as in `reference.unroll`."""
    refuse("recurrent_delta_rule", OPTIONS, feature_map=feature_map)
    sizes = Sizes(*k.shape, v.shape[-1])
    recurrent = (query_weights, key_weights, value_weights, strength_weights)
    given = (q, k, v, beta, *(per_head(matrix, sizes.batch) for matrix in recurrent))
    results, saved = fresh(v, weights, output), fresh(q, k, v, beta, v) if save else ()
    own = (*results, *(saved or [None] * len(SAVED)))
    launch(FORWARD, sizes, (*given, is_first, weights, output), own)
    return results + saved


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    query_weights: Tensor,
    key_weights: Tensor,
    value_weights: Tensor,
    strength_weights: Tensor,
    is_first: Tensor,
    weights: Tensor,
    output: Tensor,
    query: Tensor,
    key: Tensor,
    error: Tensor,
    strength: Tensor,
    hidden: Tensor,
    grad_y: Tensor,
    grad_final: Tensor,
    grad_final_output: Tensor,
    feature_map: str = "softmax",
) -> tuple:
    """The gradients of q, k, v, beta, the four recurrent weights and the initial state."""
    sizes = Sizes(*k.shape, v.shape[-1])
    recurrent = (query_weights, key_weights, value_weights, strength_weights)
    given = tuple(per_head(matrix, sizes.batch) for matrix in recurrent)
    given += (is_first, weights, grad_y, grad_final, grad_final_output)
    gradients = fresh(q, k, v, beta, weights, output)
    launch(BACKWARD, sizes, given, (query, key, error, strength, hidden, *gradients))
    of_rows, of_state = gradients[:4], gradients[4:]
    of_weights = (_sum_of_outer(hidden, gradient) for gradient in of_rows[:3])
    of_strength = _sum_of_outer(hidden, of_rows[3].unsqueeze(-1)).squeeze(-1)
    return *of_rows, *of_weights, of_strength, *of_state


def _sum_of_outer(left: Tensor, right: Tensor) -> Tensor:
    """The sum over T and B of left right^T: [T, B, H, N] and [T, B, H, M] -> [H, N, M]."""
    heads = (tensor.flatten(0, 1).transpose(0, 1) for tensor in (left, right))
    return torch.bmm(next(heads).transpose(1, 2), next(heads))
